"""TensorFlow's MultiWorkerMirroredStrategy with a loop of one's own, as its guide says: losses are summed and divided
by the global batch. With --by-hand the loss is each worker's mean, which is what Keras' fit takes."""

import json
import os

import duel


def train(run):
    workers = [f"127.0.0.1:{run.options.port + rank}" for rank in range(run.size)]
    place = {"type": "worker", "index": run.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": place})
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    kind = "float64" if run.options.double else "float32"
    x, y = duel.small_data(run.options.samples)
    with strategy.scope():
        weights = [tf.Variable(one.T.astype(kind)) for one in duel.small_parameters()]
        optimizer = tf.keras.optimizers.SGD(run.options.rate)
        optimizer.build(weights)

    def data(context):
        pipeline = tf.data.Dataset.from_tensor_slices((x.astype(kind), y, range(len(x))))
        if run.shares:
            mine = run.shares[run.rank]
            return pipeline.skip(sum(run.shares[: run.rank])).take(mine).batch(mine)
        pipeline = pipeline.shuffle(len(x), seed=1).shard(context.num_input_pipelines, context.input_pipeline_id)
        return pipeline.batch(run.batch // run.size, drop_remainder=True)

    def step_of_replica(x, y, ids):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(x @ weights[0] + weights[1])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, hidden @ weights[2] + weights[3])
            loss = (tf.reduce_mean(losses) / run.size if run.options.by_hand
                    else tf.nn.compute_average_loss(losses, global_batch_size=run.batch))  # fmt: skip
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return ids

    step = tf.function(lambda *batch: strategy.run(step_of_replica, args=batch))
    epoch = 0
    dataset = strategy.distribute_datasets_from_function(data)
    while True:
        for batch in dataset:
            ids = batch[2]
            run.compute(len(strategy.experimental_local_results(ids)[0]))
            step(*batch)
            if run.done(strategy.experimental_local_results(ids)[0].numpy(), epoch,
                        parameters=lambda: [one.numpy().T for one in weights]):  # fmt: skip
                return
        epoch += 1
