"""The rows of scripts/gpu/programs: the programs, how each one runs, and the checks of its runs. A
new program is a new row here, and a file in tests/gpu if it needs one.
"""

SHARE = 0.6
WAYS = ("plain", "tight", "hook", "auto", "ample", "other")
TORCHRUN = "torchrun --standalone --nproc-per-node"
# These programs need this many steps until their devices, which wait for each other, settle.
LLAMA = "transformer.py --layers 8 --hidden 4096 --sequence 4096 --batch 2 --steps 20"
NATIVE = {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
MLP_SHAPE = "--layers=12 --width=64 --steps=8"
MLP = f"{{build}}/samples/mlp-static {MLP_SHAPE}"
TINY = "{build}/samples/hidden-static 2000"
TABLES = "pointer-table,long-table,host-table,freed-table,table-changes,table-moves,table-graph,tensor-map,module-table,module-table-graph"
MEMCHECK = "compute-sanitizer --tool memcheck"
NSYS = "nsys profile --trace cuda,nvtx --force-overwrite true --output /tmp/penstock-nsys"
NCU = "ncu --target-processes all --clock-control none --launch-skip 1000 --launch-count 3"  # kernels of the fourth step
ONE_PASS, REPLAYED = f"{NCU} --metrics sm__cycles_elapsed.max", f"{NCU} --set basic --replay-mode kernel"


class Row:
    """One program.

    command   a program of tests/gpu and its arguments, behind torchrun if that starts it.
              {build}: the build directory of the samples

    How it runs:
    gpus      the number of GPUs that it needs
    needs     a program or a file that it needs; {build} as above
    settings  environment variables
    ways      the ways of running it, besides plain
    share     the share of plain's peak that it gets under `tight` and `hook`
    limit     seconds for one run, if it needs more than others
    tiny      arguments with which it holds almost no memory, if it doesn't print how much it held

    Its checks:
    spread    the least difference that losses of two runs may always have, if no run repeats another
    plains    the number of plain runs by which losses are judged. If no run repeats another, a further
              run may lie farther from them than they from each other. With normal distribution that
              happens once in 3 times with two plain runs, once in 15 with three, and once in 60 with
              four. The plain runs of its turns count too.
    turns     the number of runs of plain and of each way with enough memory, in turn. Medians are
              compared. For programs whose equal runs differ by about the 1 % that the check allows.
    vary      the share of its launches by which launches and copies of two runs may differ, if it
              picks kernels by timing them. The difference must be the same in each step.
    slack     MiB that its peak may exceed budget and fixed memory, for memory that varies by itself
    timed     False: its step time means nothing
    others    True: other processes hold memory of the GPU, so its peak is unknown
    pairs     True: the number of its pairs of a launch and a copy differs between runs, plain too.
              Launches are judged after subtracting copies.
    aside     a line that says why memory can't stay within the budget
    says      a line that Penstock must print
    prints    (pattern, times) of a line that must be printed this many times, in plain runs too
    report    figures that the report must have under `tight`, by key (with dots: inside an object)
    like      the row that must cost as little as this one. The budget of `tight` is chosen so that
              transfers take the same share of the step as in that row.
    """

    def __init__(self, name, title, command, gpus=1, needs=None, settings=None, ways=WAYS, share=SHARE, limit=None, tiny=None, spread=0.0, vary=0.0, slack=0, timed=True,
                 plains=2, turns=1, others=False, pairs=False, aside=None, says=None, prints=None, report=None, like=None):
        self.name, self.title, self.command, self.gpus, self.needs, self.tiny, self.limit = name, title, command, gpus, needs, tiny, limit
        self.settings, self.ways, self.share, self.report = settings or {}, ways, share, report or {}
        self.others, self.pairs, self.plains, self.turns = others, pairs, plains, turns
        self.spread, self.vary, self.slack, self.timed, self.aside, self.says, self.prints, self.like = spread, vary, slack, timed, aside, says, prints, like


ROWS = [
    Row("eager", "torch eager: bf16 autocast, SDPA, fused AdamW, clipping, embedding, dropout", "transformer.py"),
    Row("scaler", "torch eager: fp16 and GradScaler, foreach AdamW, accumulation, evaluation in between",
        "transformer.py --amp fp16 --optimizer foreach --accumulate 2 --evaluate-every 4 --batch 16 --steps 12"),
    # The host limits it between the backward pass and the end of a step, so equal runs differ:
    # plain 62.0 and 62.3 ms, auto 62.7 and 63.8 (one H100). Its first step requests all memory some
    # hundred times; that memory goes back 2 s after the last request. The median of 96 steps is
    # later. By CUPTI, 96 steps have 124,251 to 124,539 launches and 22,015 to 22,303 copies. In 16
    # runs on two kinds of GPU, each step of a run differed by the same number.
    Row("vision", "timm, channels last, cuDNN benchmark mode, GradScaler, DataLoader workers", "vision.py 256 96 12", spread=1e-2, turns=3, vary=0.01),
    Row("lengths", "batches of lengths that hardly come again, from half of the longest up", "transformer.py --shortest 1024 --steps 24"),
    Row("reentrant", "torch.utils.checkpoint, reentrant", "transformer.py --saved reentrant --layers 12"),
    Row("nonreentrant", "torch.utils.checkpoint, non-reentrant", "transformer.py --saved nonreentrant --layers 12"),
    Row("hooks", "saved_tensors_hooks", "transformer.py --saved hooks"),
    Row("save-on-cpu", "save_on_cpu with pinned memory", "transformer.py --saved cpu"),
    Row("compile", "torch.compile", "transformer.py --compile default --steps 12"),
    Row("reduce-overhead", "torch.compile, mode reduce-overhead (torch's own allocator)", "transformer.py --compile reduce-overhead --steps 12"),
    Row("graph", "the step captured in a CUDA graph", "transformer.py --graph --steps 12",
        aside="is the graph's: it stays on the device"),
    Row("graphed", "every second layer as CUDA graphs (torch.cuda.make_graphed_callables)", "graphed.py", aside="is the graph's: it stays on the device"),
    Row("mempool", "torch's own caching allocator, the training in a MemPool of its own", "transformer.py --pool", settings=NATIVE),
    Row("profiler", "torch.profiler beside Penstock", "transformer.py --profile"),
    Row("native", "torch's own caching allocator", "transformer.py", settings=NATIVE),
    Row("expandable", "torch's own caching allocator, expandable segments", "transformer.py",
        settings={"PYTORCH_CUDA_ALLOC_CONF": "backend:native,expandable_segments:True"}),
    Row("script-sets", "a script that asks for expandable segments itself", "transformer.py --expandable"),
    Row("empties", "torch.cuda.empty_cache() after each step", "transformer.py --empty-cache"),
    # It needs this many steps to show a difference of 1 %: the host limits it, and it evaluates
    # after every fourth step.
    Row("transformers", "Hugging Face Trainer, accumulation and checkpointing", "hf_trainer.py 8 2048 2048 4 20", plains=4),
    Row("lightning", "Lightning Trainer", "lightning_trainer.py"),
    Row("jax", "JAX, platform allocator (memory of its own mapping)", "jax_trainer.py", tiny="64 64 2 3", settings={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
        pairs=True),  # XLA's autotuner makes them: 494 to 509 copies in six runs, and always 690 launches more
    # Without preallocation of three quarters of the device, plain shows how much it needs. Penstock
    # asks for another allocator, and turns preallocation off too unless the user set it.
    Row("jax-own", "JAX, its own allocator (under Penstock cuda_async)", "jax_trainer.py", tiny="64 64 2 3", settings={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        pairs=True),
    Row("jax-step", "JAX, the whole step one jitted function, its layers in a loop", "jax_step.py loop", tiny="loop 64 2 32 2 3", share=0.42,
        settings={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, ways=("plain", "tight", "auto"), pairs=True, limit=240),
    # Six steps are too few to show a difference of 1 %.
    Row("jax-room", "JAX, the same with more steps and memory enough", "jax_step.py loop 1024 16 1024 12 40", tiny="loop 64 2 32 2 3",
        settings={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, ways=("plain", "auto"), pairs=True, turns=3),
    Row("jax-scan", "JAX, the same with lax.scan over its layers", "jax_step.py scan", tiny="scan 64 2 32 2 3", share=0.33,
        settings={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, ways=("plain", "tight", "auto"), pairs=True, limit=240),
    Row("cupy", "CuPy, its own pool (a static runtime)", "cupy_trainer.py pool", tiny="pool 64 64 2 3"),
    Row("cupy-none", "CuPy without a pool", "cupy_trainer.py none", tiny="none 64 64 2 3"),
    Row("static", "a static CUDA runtime in C++", f"sample.py {MLP} --batch=1048576", tiny=TINY),
    # {build}/cuda12 has libcudart.so.12 and libcupti.so.12 from PyPI's nvidia-cuda-runtime-cu12 and
    # nvidia-cuda-cupti-cu12, 12.4.127.
    Row("cuda12", "CUDA 12.4's runtime and CUPTI", f"sample.py env LD_LIBRARY_PATH={{build}}/cuda12 {{build}}/samples/mlp-12 {MLP_SHAPE} --batch=1048576",
        needs="{build}/cuda12/libcudart.so.12", tiny=TINY),
    Row("errands", "nvidia-smi, git, a compiler; children forked, spawned and on the GPU; a DataLoader", "errands.py", timed=False,
        slack=192),  # Penstock also manages the child on the GPU
    Row("threads", "two threads, each its own training and stream, beside a second context", "threads.py"),
    Row("registered", "batches in shared memory that is registered", "storage.py --every 0",
        slack=67),  # without Penstock, torch's cudaMallocAsync needs 757 MiB beside tensors, its own allocator 690
    Row("storage", "the same, and weights by cuFile to files and back", "storage.py"),
    Row("shared", "another process leaves 21 GiB of the GPU, and takes one more later (budget auto)", "shared.py 21 1 transformer.py --steps 16",
        ways=("tight",), others=True),
    Row("twins", "two trainings at once in 42 GiB that another process leaves (budget auto)", "shared.py 42 0 --twins transformer.py --steps 16",
        ways=("tight",), others=True),
    Row("ipc", "weights that another process sees through CUDA IPC, plain by a rule", "ipc_trainer.py", ways=("tight", "auto"), timed=False, slack=128,
        settings={**NATIVE, "PENSTOCK_RULES": "plain size>=774MiB size<=774MiB"}, report={"passthrough.plain": 1}),
    Row("ipc-refused", "the same without the rule: no handle, and a line says what helps", "ipc_trainer.py --refused", ways=("tight",), timed=False,
        settings=NATIVE, says=r"cudaIpcGetMemHandle: an allocation of \d+ bytes .*PENSTOCK_RULES='plain size>=811597824 size<=811597824'"),
    Row("tables", "pointer tables and tensor maps in memory", f"sample.py {{build}}/samples/hostile-static {TABLES} 16 128", tiny=TINY,
        ways=("tight", "hook", "auto"), slack=32, report={"pointer_tables": 250}),
    Row("textures", "textures over spans", "sample.py {build}/samples/hostile-static texture 16 128", tiny=TINY, ways=("tight", "hook", "auto"), slack=32),
    Row("ahead", "copies that need not read their source in stream order", "sample.py {build}/samples/hostile-static copies-ahead 16 128", tiny=TINY,
        ways=("tight", "hook"), slack=32),
    Row("verify", "penstock verify, and a training with its rules", "verify.py {build}/samples/hidden-static 16 table weights large", share=0.5,
        tiny=TINY, ways=("tight",), limit=300, slack=64),
    Row("sanitizer", "compute-sanitizer's memcheck", f"sample.py {MEMCHECK} {MLP} --batch=131072", needs="compute-sanitizer",
        tiny=f"{MEMCHECK} {TINY}", ways=("tight", "auto"), limit=240, slack=128, prints=(r"^=+ ERROR SUMMARY: 0 errors$", 1), report={"tracer": "hook"}),
    Row("nsys", "Nsight Systems", f"sample.py {NSYS} -- {MLP} --batch=262144", needs="nsys", tiny=f"{NSYS} -- {TINY}", ways=("tight", "auto"), limit=180, slack=128,
        prints=(r"\.(nsys-rep|qdstrm)$", 1), report={"tracer": "hook"}),
    Row("ncu", "Nsight Compute, three kernels in one pass", f"sample.py {ONE_PASS} -- {MLP} --batch=262144", needs="ncu", tiny=f"{ONE_PASS} -- {TINY}",
        ways=("tight", "auto"), limit=180, slack=128, prints=(r"^ +sm__cycles_elapsed\.max +\S*cycle +\d", 3), report={"tracer": "hook"}),
    Row("ncu-replay", "Nsight Compute, three kernels in several passes", f"sample.py {REPLAYED} -- {MLP} --batch=262144", needs="ncu",
        tiny=f"{REPLAYED} -- {TINY}", ways=("tight",), limit=180, slack=128, prints=(r"^==PROF== Profiling .* ([2-9]|\d\d+) passes$", 3),
        report={"tracer": "hook"}),
    Row("ddp", "DDP, two GPUs", f"{TORCHRUN} 2 {LLAMA} --parallel ddp", gpus=2),
    Row("fsdp", "FSDP2, two GPUs", f"{TORCHRUN} 2 {LLAMA} --parallel fsdp", gpus=2),
    Row("tp", "tensor parallel, two GPUs", f"{TORCHRUN} 2 {LLAMA} --parallel tp --optimizer loop", gpus=2),
    Row("cut", "one process, its layers cut over two GPUs", "transformer.py --parallel cut --layers 12 --steps 20", gpus=2),
    Row("replicas", "DataParallel, two GPUs of one process", "transformer.py --parallel replicas --batch 16", gpus=2),
    Row("alone", "the same on one GPU, its link as busy as FSDP2's", LLAMA, like="fsdp"),
    Row("ddp4", "DDP, four GPUs", f"{TORCHRUN} 4 {LLAMA} --parallel ddp", gpus=4),
    Row("fsdp4", "FSDP2, four GPUs", f"{TORCHRUN} 4 {LLAMA} --parallel fsdp", gpus=4),
    Row("tp4", "tensor parallel, four GPUs", f"{TORCHRUN} 4 {LLAMA} --parallel tp --optimizer loop", gpus=4),
    Row("alone4", "the same on one GPU, its link as busy as FSDP2's of four", LLAMA, like="fsdp4"),
]
