"""Hugging Face's Trainer on a small Llama with random weights: gradient accumulation, checkpointing
by the Trainer, and evaluation in between.

    python hf_trainer.py [layers [hidden [sequence [batch [steps]]]]]

Prints one line of JSON (loop.py).
"""
import os
import sys
import tempfile
import time

import loop

os.environ.update({"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true"})
torch = loop.prepare()
import transformers  # noqa: E402

layers, hidden, sequence, batch, steps = (int(x) for x in (sys.argv[1:] + ["8", "2048", "2048", "4", "8"][len(sys.argv) - 1:]))
configuration = transformers.LlamaConfig(vocab_size=32000, hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers,
                                         num_attention_heads=max(1, hidden // 128), num_key_value_heads=max(1, hidden // 128),
                                         max_position_embeddings=sequence, use_cache=False)


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        row = torch.randint(0, 32000, (sequence,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": row, "labels": row}


class Watch(transformers.TrainerCallback):
    def __init__(self):
        self.ms, self.loss = [], []

    def on_step_begin(self, *_, **__):
        self.began = time.perf_counter()

    def on_step_end(self, *_, **__):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ms.append(round((time.perf_counter() - self.began) * 1e3, 1))

    def on_log(self, arguments, state, control, logs=None, **_):
        if logs and "loss" in logs:
            self.loss.append(float(logs["loss"]))


watch = Watch()
model = transformers.LlamaForCausalLM(configuration)
with tempfile.TemporaryDirectory() as directory:
    arguments = transformers.TrainingArguments(
        output_dir=directory, max_steps=steps, per_device_train_batch_size=batch, per_device_eval_batch_size=batch, bf16=torch.cuda.is_available(),
        gradient_accumulation_steps=2, gradient_checkpointing=True, logging_steps=1, eval_strategy="steps", eval_steps=4, save_strategy="no",
        report_to=[], dataloader_num_workers=2, disable_tqdm=True, logging_strategy="steps")
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Tokens(batch * 2 * steps), eval_dataset=Tokens(batch),
                                   callbacks=[watch])
    trainer.train()
told = {"ms": watch.ms, "loss": [round(x, 6) for x in watch.loss], "chk": loop.checksum(model.parameters())}
if torch.cuda.is_available():
    told.update(peakGiB=round(torch.cuda.max_memory_allocated() / 2**30, 3), reservedGiB=round(torch.cuda.max_memory_reserved() / 2**30, 3))
loop.tell(told)
