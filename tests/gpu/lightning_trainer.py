"""Lightning's Trainer on a wide perceptron with layer norms: automatic optimisation, bf16 mixed
precision, gradient clipping and validation.

    python lightning_trainer.py [width [batch [steps]]]

Prints one line of JSON (loop.py).
"""
import logging
import sys
import time
import warnings

import loop

torch = loop.prepare()
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning  # noqa: E402
from torch import nn  # noqa: E402

width, batch, steps = (int(x) for x in (sys.argv[1:] + ["4096", "16384", "12"][len(sys.argv) - 1:]))


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layers = [m for _ in range(12) for m in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())]
        self.layers = nn.Sequential(nn.Linear(64, width), *layers, nn.Linear(width, 10))
        self.ms, self.loss = [], []

    def loss_of(self, rows):
        return nn.functional.cross_entropy(self.layers(rows[0]), rows[1])

    def training_step(self, rows, _):
        loss = self.loss_of(rows)
        self.loss.append(loss.detach().clone())
        return loss

    def validation_step(self, rows, _):
        self.log("validation", self.loss_of(rows))

    def on_train_batch_start(self, *_):
        self.began = time.perf_counter()

    def on_train_batch_end(self, *_):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ms.append(round((time.perf_counter() - self.began) * 1e3, 1))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def rows(count):
    generator = torch.Generator().manual_seed(1)
    return torch.utils.data.TensorDataset(torch.randn(count, 64, generator=generator), torch.randint(0, 10, (count,), generator=generator))


net = Net()
trainer = lightning.Trainer(max_steps=steps, precision="bf16-mixed", gradient_clip_val=1.0, logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False, val_check_interval=max(1, steps // 2), deterministic="warn",
                            accelerator="auto", devices=1, limit_val_batches=2)
trainer.fit(net, torch.utils.data.DataLoader(rows(batch * steps), batch_size=batch),
            torch.utils.data.DataLoader(rows(batch * 2), batch_size=batch))
told = {"ms": net.ms, "loss": [round(float(x), 6) for x in net.loss], "chk": loop.checksum(net.parameters())}
if torch.cuda.is_available():
    told.update(peakGiB=round(torch.cuda.max_memory_allocated() / 2**30, 3), reservedGiB=round(torch.cuda.max_memory_reserved() / 2**30, 3))
loop.tell(told)
