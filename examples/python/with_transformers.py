"""Hugging Face's Trainer on unequal workers: torchrun --nproc-per-node 2 with_transformers.py"""

import tempfile

from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

import isochron.torch as isochron
from data import Blocks
from isochron.torch.transformers import IsochronTrainer


class Tokens(Dataset):
    def __init__(self, blocks):
        self.blocks = blocks

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        tokens, _ = self.blocks[index]
        return {"input_ids": tokens, "labels": tokens}


if __name__ == "__main__":
    blocks = Blocks(320)
    job = isochron.Job(global_batch=32)
    config = GPT2Config(vocab_size=blocks.vocab_size, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, num_train_epochs=2, learning_rate=3e-3, use_cpu=True, report_to=[],
                                      disable_tqdm=True, save_strategy="no")  # fmt: skip
        trainer = IsochronTrainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens(blocks), job=job)
        trainer.train()
    print(f"steps {job.step} complete {job.ledger.complete} batches {job.batch_sizes}")
