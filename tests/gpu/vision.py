"""The training of a convolutional net, timm's ResNet-50, as users write it: images from the worker
processes of a DataLoader, pinned and copied ahead, autocast to fp16 with a GradScaler, channels
last, cuDNN's benchmark mode, and foreach SGD.

    python vision.py [batch [steps [workers]]]

Prints one line of JSON (loop.py).
"""
import sys

import loop

torch = loop.prepare()
import timm  # noqa: E402

batch, steps, workers = (int(x) for x in (sys.argv[1:] + ["256", "10", "2"][len(sys.argv) - 1:]))
torch.backends.cudnn.benchmark = True
device = "cuda" if torch.cuda.is_available() else "cpu"


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return batch * steps

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 8, 8, generator=generator).repeat(1, 28, 28), index % 1000


model = timm.create_model("resnet50", num_classes=1000).to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
scaler = torch.amp.GradScaler(device, enabled=device == "cuda")
loader = iter(torch.utils.data.DataLoader(Images(), batch_size=batch, num_workers=workers, pin_memory=device == "cuda"))


def step(number):
    images, labels = (x.to(device, non_blocking=True) for x in next(loader))
    images = images.to(memory_format=torch.channels_last)
    with torch.autocast(device, torch.float16 if device == "cuda" else torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return loss


loop.tell(loop.run(torch, step, steps, model.parameters()))
