"""Small models and data to train them on; the same for the same seed."""

import keras
import numpy as np

SAMPLES = 250


def images():
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 3, SAMPLES)
    return (generator.normal(size=(SAMPLES, 8, 8, 1)) + 0.3 * labels[:, None, None, None]).astype("float32"), labels


def sentences():
    generator = np.random.default_rng(2)
    words = generator.integers(0, 20, (SAMPLES, 6))
    return words, words.sum(1) % 3


def mlp():
    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(),
                             keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)])  # fmt: skip


class Block(keras.layers.Layer):
    """Hides its BatchNormalization one level down, as users' own layers do."""

    def __init__(self, filters, **options):
        super().__init__(**options)
        self.convolution = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)
        self.norm = keras.layers.BatchNormalization(momentum=0.9)

    def call(self, inputs, training=None):
        return keras.ops.relu(self.norm(self.convolution(inputs), training=training))


class Late(keras.layers.Layer):
    """Makes its BatchNormalization when it is built."""

    def build(self, shape):
        self.norm = keras.layers.BatchNormalization()
        self.norm.build(shape)

    def call(self, inputs, training=None):
        return self.norm(inputs, training=training)


def cnn():
    return keras.Sequential([
        keras.Input((8, 8, 1)), Block(4), keras.layers.MaxPooling2D(), Block(6), keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(3)])  # fmt: skip


def transformer():
    words = keras.Input((6,), dtype="int64")
    x = keras.layers.Embedding(20, 8)(words)
    attended = keras.layers.MultiHeadAttention(2, 4)(x, x)
    x = keras.layers.LayerNormalization()(x + attended)
    x = keras.layers.LayerNormalization()(x + keras.layers.Dense(8)(keras.layers.Dense(16, activation="gelu")(x)))
    return keras.Model(words, keras.layers.Dense(3)(keras.layers.GlobalAveragePooling1D()(x)))


MODELS = {"mlp": (mlp, images), "cnn": (cnn, images), "transformer": (transformer, sentences)}


def make(name, seed=3):
    build, data = MODELS[name]
    keras.utils.set_random_seed(seed)
    return build(), data()


def loss_function():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def momentum():
    return keras.optimizers.SGD(0.05, momentum=0.9)


def difference(model, reference):
    """The largest of any variable, statistics of BatchNormalization included."""
    pairs = zip(model.get_weights(), reference.get_weights(), strict=True)
    return max(float(np.abs(mine - theirs).max()) for mine, theirs in pairs)
