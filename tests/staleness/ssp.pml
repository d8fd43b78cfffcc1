/* The stale-synchronous protocol by ClockTable's rules: three workers and a server that holds the clocks.
 *
 * a) A worker that has `go` computes a step and sends `finish`.
 * b) The server raises its clock, and sends `go` to every worker that waits and is at most S ahead of the slowest.
 * c) -DCHURN: worker 0 leaves for good at any moment, in a step or waiting (`bye` is sent by it or by whoever notices),
 *    which may release others; worker 2 joins at any moment (`hello`), at the slowest clock.
 *
 * Only differences of clocks matter, so the server keeps those: the state space is finite and the workers run for ever.
 *
 * Safety: a worker at work is at most S ahead of the slowest, one that waits at most S + 1; no deadlock.
 * Progress, under weak fairness: every worker that stays computes again and again.
 *
 * -DBROKEN=1: the bound is off by one. 2: a departure releases nobody. 3: a finish releases only the finisher.
 */
#ifndef S
#define S 1
#endif
#ifndef BROKEN
#define BROKEN 0
#endif
#define N 3

mtype = { finish, bye, hello };
chan to_server = [N] of { mtype, byte };
chan go[N] = [1] of { bit };

byte ahead[N];     /* clock less the slowest clock */
bool present[N];
bool waits[N];     /* the server owes it a `go` */
bool computes[N];

hidden byte w, i;  /* the server's scratch: of no meaning between its steps */

#if BROKEN == 1
#define MAY_GO(k) (ahead[k] <= S + 1)
#else
#define MAY_GO(k) (ahead[k] <= S)
#endif

#define SLOWEST(k) (present[k] && ahead[k] == 0)

/* Makes the slowest clock 0 again. Worker 1 never leaves, so this ends. */
inline rebase() {
  do
  :: SLOWEST(0) || SLOWEST(1) || SLOWEST(2) -> break
  :: else -> for (i : 0 .. N - 1) { if :: present[i] -> ahead[i]-- :: else fi }
  od
}

inline release(k) {
  if
  :: present[k] && waits[k] && MAY_GO(k) -> waits[k] = false; go[k]!1
  :: else
  fi
}

inline release_all() {
  for (i : 0 .. N - 1) { release(i) };
  skip  /* a d_step must not end with a loop */
}

active proctype server() {
end:
  do
  :: d_step {
       to_server?finish(w) -> ahead[w]++; waits[w] = true; rebase();
#if BROKEN == 3
       release(w)
#else
       release_all()
#endif
     }
  :: d_step {
       to_server?bye(w) -> present[w] = false; waits[w] = false; ahead[w] = 0; rebase();
#if BROKEN == 2
       skip
#else
       release_all()
#endif
     }
  :: d_step { to_server?hello(w) -> present[w] = true; waits[w] = true; release(w) }
  od
}

proctype worker(byte me; bool joins; bool leaves) {
  if
  :: joins -> to_server!hello(me); go[me]?_
  :: else
  fi;
  do
  :: computes[me] = true;
     atomic { computes[me] = false;
       if
       :: to_server!finish(me)
       :: leaves -> to_server!bye(me); break
       fi }
     if
     :: go[me]?_
     :: leaves -> to_server!bye(me); break
     fi
  od
}

init {
  atomic {
    present[0] = true; present[1] = true;
#ifdef CHURN
    run worker(0, false, true); run worker(1, false, false); run worker(2, true, false)
#else
    present[2] = true;
    run worker(0, false, false); run worker(1, false, false); run worker(2, false, false)
#endif
  }
}

#define WITHIN(k) (!present[k] || (ahead[k] <= S + 1 && (!computes[k] || ahead[k] <= S)))

active proctype monitor() {
end:
  atomic { !(WITHIN(0) && WITHIN(1) && WITHIN(2)) -> assert(false) }
}

#ifdef CHURN
ltl progress { []<> computes[1] && []<> computes[2] }
#else
ltl progress { []<> computes[0] && []<> computes[1] && []<> computes[2] }
#endif
