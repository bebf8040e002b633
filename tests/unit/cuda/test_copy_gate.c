/*
 * The gate with a driver that notes what is queued: when it is shut and open, who opens it that was
 * forgotten, in what pieces a copy is queued and how often it looks. That mappings do pass the
 * copies is shown in tests/bats/memory/copy-gate.bats.
 */
#include "cuda/copy_gate.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "comes_to.h"
#include "expect.h"
#include "stub_driver.h"
#include "tracer/traced_calls.h"

#define PAGE ((size_t)2 << 20)
#define PIECE (8 * PAGE)
/* What the device takes for host memory's addresses is not what the host does. */
#define AWAY ((CUdeviceptr)1 << 46)
#define TO ((CUdeviceptr)1 << 44)
#define FROM ((CUdeviceptr)1 << 45)

#define WORDS_APART 16

static const uint32_t *word; /* of the way out; the other way's lies so many further */
static atomic_uint looks;
static bool no_words;
static enum ps_copy_gate_way way;

static CUresult CUDAAPI take_memory(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    EXPECT(bytes >= sizeof *word);
    word = memory;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI give_memory_back(void *memory)
{
    (void)memory;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI tell_address(CUdeviceptr *address, void *memory, unsigned flags)
{
    (void)flags;
    *address = AWAY + (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI wait_for_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags)
{
    EXPECT(stream == (CUstream)&looks);
    EXPECT_U64(AWAY + (CUdeviceptr)(uintptr_t)(word + (way == PS_COPY_GATE_OUT ? 0 : WORDS_APART)), address);
    EXPECT_U64(0, value);
    EXPECT_U64(CU_STREAM_WAIT_VALUE_EQ, flags);
    atomic_fetch_add(&looks, 1);
    return no_words ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static unsigned word_of(enum ps_copy_gate_way of)
{
    return __atomic_load_n(word + (of == PS_COPY_GATE_OUT ? 0 : WORDS_APART), __ATOMIC_SEQ_CST);
}

static unsigned word_now(void)
{
    return word_of(PS_COPY_GATE_OUT);
}

static bool is_open(void)
{
    return !word_of(PS_COPY_GATE_OUT) && !word_of(PS_COPY_GATE_IN);
}

static size_t copied, pieces, largest;

static CUresult CUDAAPI copy_piece(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    EXPECT(stream == (CUstream)&looks);
    EXPECT_U64(TO + copied, to);
    EXPECT_U64(FROM + copied, from);
    copied += bytes;
    pieces++;
    largest = bytes > largest ? bytes : largest;
    return CUDA_SUCCESS;
}

/* Looks for so many copies; how the last one was queued stands in the figures above. */
static unsigned looks_of(size_t copies, size_t bytes)
{
    const unsigned before = atomic_load(&looks);

    for (size_t i = 0; i < copies; i++) {
        copied = pieces = largest = 0;
        EXPECT_INT(0, ps_copy_gate_copy((CUstream)&looks, way, TO, FROM, bytes));
        EXPECT_U64(bytes, copied);
    }
    return atomic_load(&looks) - before;
}

/* Which has a first look at the gate itself. */
static void make(void)
{
    const enum ps_copy_gate_way before = way;

    way = PS_COPY_GATE_OUT;
    ps_copy_gate_make((CUstream)&looks, PAGE);
    way = before;
}

/* None goes out yet. */
static void test_none(void)
{
    way = PS_COPY_GATE_IN;
    EXPECT_U64(0, looks_of(1, 10 * PIECE));
    EXPECT_U64(1, pieces);
    EXPECT(!ps_copy_gate_shut());
    no_words = true;
    make();
    no_words = false;
    EXPECT_U64(1, atomic_load(&looks)); /* the one by which it was found out */
    EXPECT_U64(0, looks_of(3, 10 * PIECE));
    EXPECT_U64(1, pieces);
    EXPECT(!ps_copy_gate_shut());
    EXPECT(is_open());
}

static void test_pieces(void)
{
    way = PS_COPY_GATE_OUT;
    looks_of(1, PIECE);
    EXPECT_U64(1, pieces);
    looks_of(1, 4 * PIECE + PAGE);
    EXPECT_U64(5, pieces);
    EXPECT_U64(PIECE, largest);
    EXPECT_U64(8, looks_of(1, 8 * PIECE));
    EXPECT_U64(8, pieces);
    /* Eight at most, of whole pages. */
    looks_of(1, 8 * PIECE + PAGE);
    EXPECT_U64(PIECE + PAGE, largest);
    EXPECT_U64(8, looks_of(1, 128 * PIECE));
    EXPECT_U64(8, pieces);
    /* A look for each piece, and for as many small copies as come to one. */
    EXPECT_U64(4, looks_of(4, PIECE));
    unsigned of_small = looks_of(64, PAGE);
    EXPECT(of_small == 8);
    /* Nothing is mapped between the pieces on the way in, which are twice as long. */
    way = PS_COPY_GATE_IN;
    looks_of(1, 2 * PIECE);
    EXPECT_U64(1, pieces);
    EXPECT_U64(5, looks_of(1, 9 * PIECE));
    EXPECT_U64(5, pieces);
    EXPECT_U64(2 * PIECE, largest);
    looks_of(1, 128 * PIECE);
    EXPECT_U64(32, pieces);
    of_small = looks_of(128, PAGE);
    EXPECT(of_small == 8);
    way = PS_COPY_GATE_OUT;
}

/* Of memory that the driver knows nothing of, as most of the host's is. */
static CUresult CUDAAPI ask_pointer(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    (void)data;
    (void)attribute;
    (void)address;
    return CUDA_ERROR_INVALID_VALUE;
}

/* The program's own copy from the host, in rows with as much between them. */
static void copy_rows_in(const void *host, size_t width, size_t rows)
{
    const CUDA_MEMCPY2D rows_in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                   .srcHost = host,
                                   .srcPitch = 2 * width,
                                   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                   .dstDevice = TO,
                                   .dstPitch = 2 * width,
                                   .WidthInBytes = width,
                                   .Height = rows};
    const cuMemcpy2DAsync_v2_params call = {&rows_in, NULL};

    ps_traced_call_begins(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2, &call);
    ps_traced_call_ended(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2, &call, CUDA_SUCCESS);
}

/* What comes in holds up no mapping, and is held up by none. */
static void test_in_alone(void)
{
    static char host[1 << 20];

    /* While the program copies nothing in by the engine, nobody else wants it. */
    EXPECT_U64(0, looks_of(1, 8 * PIECE));
    EXPECT_U64(1, pieces);
    ps_copy_gate_program_copies_in(4096);
    copy_rows_in(host, 64, 64);
    EXPECT_U64(0, looks_of(1, 8 * PIECE));
    copy_rows_in(host, 64, 65); /* it is their sum that the engine copies */
    EXPECT(looks_of(1, 8 * PIECE) >= 3);
    EXPECT_U64(4, pieces);
    EXPECT(!ps_copy_gate_shut());
}

static void test_shut(void)
{
    EXPECT(is_open());
    EXPECT(ps_copy_gate_shut());
    EXPECT_U64(1, word_now());
    EXPECT_U64(0, word_of(PS_COPY_GATE_IN)); /* no mapping waits for what comes in, as far as is known */
    EXPECT(ps_copy_gate_shut());             /* another thread's */
    ps_copy_gate_open();
    EXPECT_U64(1, word_now());
    ps_copy_gate_open();
    EXPECT(is_open());
}

/*
 * It is for what comes in that mappings wait: only that way's word is shut, and the pieces change
 * places.
 */
static void test_measured(void)
{
    ps_copy_gate_holds_up(PS_COPY_GATE_OUT, false);
    EXPECT(!ps_copy_gate_shut() && is_open());
    ps_copy_gate_holds_up(PS_COPY_GATE_IN, true);
    EXPECT(ps_copy_gate_shut());
    EXPECT_U64(0, word_of(PS_COPY_GATE_OUT));
    EXPECT_U64(1, word_of(PS_COPY_GATE_IN));
    ps_copy_gate_open();
    EXPECT(is_open());
    looks_of(1, 4 * PIECE);
    EXPECT_U64(2, pieces);
    way = PS_COPY_GATE_IN;
    looks_of(1, 4 * PIECE);
    EXPECT_U64(4, pieces);
    way = PS_COPY_GATE_OUT;
    /* While the link is measured nobody shuts it, but who measures. */
    ps_copy_gate_stay_open(true);
    EXPECT(!ps_copy_gate_shut() && is_open());
    EXPECT(ps_copy_gate_hold((CUstream)&looks));
    EXPECT_U64(1, word_of(PS_COPY_GATE_OUT));
    ps_copy_gate_let_go();
    EXPECT(is_open());
    ps_copy_gate_stay_open(false);
    /* Both at once. */
    ps_copy_gate_holds_up(PS_COPY_GATE_OUT, true);
    EXPECT(ps_copy_gate_shut());
    EXPECT(word_of(PS_COPY_GATE_OUT) && word_of(PS_COPY_GATE_IN));
    ps_copy_gate_open();
    ps_copy_gate_holds_up(PS_COPY_GATE_IN, false);
    EXPECT(is_open());
}

/* Whose mapping waits for a lock that is another thread's, which waits for the copies. */
static void test_forgotten(void)
{
    for (int i = 0; i < 3; i++) {
        const uint64_t since = ps_now_ns();
        ps_copy_gate_shut();
        EXPECT(COMES_TO(is_open()));
        EXPECT(ps_now_ns() - since > 1000000u);
        /* Another mapping does not shut it again while that one goes on. */
        ps_copy_gate_shut();
        EXPECT(is_open());
        ps_copy_gate_open();
        ps_copy_gate_open();
        ps_copy_gate_shut();
        EXPECT_U64(1, word_now());
        ps_copy_gate_open();
        EXPECT(is_open());
        /* The watcher sleeps in the end, and is woken. */
        if (i == 1)
            usleep(300000);
    }
}

int main(void)
{
    stub_driver();
    ps_cu.cuPointerGetAttribute = ask_pointer;
    ps_cu.cuMemHostRegister = take_memory;
    ps_cu.cuMemHostUnregister = give_memory_back;
    ps_cu.cuMemHostGetDevicePointer = tell_address;
    ps_cu.cuMemcpyAsync = copy_piece;
    ps_cu.cuStreamWaitValue32 = wait_for_value;
    test_none();
    make();
    test_in_alone();
    test_pieces();
    test_shut();
    test_measured();
    test_forgotten();
    return expect_status();
}
