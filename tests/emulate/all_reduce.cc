// An all-reduce of 500 kB between two workers whose links do 10 Mbit/s (links.toml): each must send and receive all of
// it, which takes 0.4 s. Fails if the sum is wrong, or if it was faster: then it did not go over the links.
#include <cstdio>
#include <vector>

#include <mpi.h>

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::vector<float> mine(125'000, static_cast<float>(rank + 1));
  std::vector<float> sum(mine.size());
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  MPI_Allreduce(mine.data(), sum.data(), static_cast<int>(mine.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const double seconds = MPI_Wtime() - start;
  const bool right = sum.front() == 3.0F && sum.back() == 3.0F && seconds > 0.35;
  std::printf("rank %d: sum %g, %g s\n", rank, static_cast<double>(sum.front()), seconds);
  MPI_Finalize();
  return right ? 0 : 1;
}
