/*
 * The gate with a driver that notes what is queued. The tests check when the gate is shut and open,
 * and which thread opens a forgotten one. They also check the pieces of a copy and the number of
 * its looks. The bats test tests/bats/memory/copy-gate.bats shows that mappings do pass the copies.
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
/* The device's addresses of host memory differ from the host's by this. */
#define AWAY ((CUdeviceptr)1 << 46)
#define TO ((CUdeviceptr)1 << 44)
#define FROM ((CUdeviceptr)1 << 45)

#define WORDS_APART 16

static const uint32_t *word; /* the word of the way out; the other way's word lies this much further */
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

/* Returns the number of looks for `copies` copies. The figures above describe the last one. */
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

/* Making the gate has a first look at it. */
static void make(void)
{
    const enum ps_copy_gate_way before = way;

    way = PS_COPY_GATE_OUT;
    ps_copy_gate_make((CUstream)&looks, PAGE);
    way = before;
}

/* No copy goes out yet. */
static void test_none(void)
{
    way = PS_COPY_GATE_IN;
    EXPECT_U64(0, looks_of(1, 10 * PIECE));
    EXPECT_U64(1, pieces);
    EXPECT(!ps_copy_gate_shut());
    no_words = true;
    make();
    no_words = false;
    EXPECT_U64(1, atomic_load(&looks)); /* the look that found this out */
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
    /* At most eight pieces, of whole pages. */
    looks_of(1, 8 * PIECE + PAGE);
    EXPECT_U64(PIECE + PAGE, largest);
    EXPECT_U64(8, looks_of(1, 128 * PIECE));
    EXPECT_U64(8, pieces);
    /* One look for each piece, and one for as many small copies as make up a piece. */
    EXPECT_U64(4, looks_of(4, PIECE));
    unsigned of_small = looks_of(64, PAGE);
    EXPECT(of_small == 8);
    /* Nothing is mapped between the pieces on the way in, so they are twice as long. */
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

/* The memory is unknown to the driver, as most of the host's is. */
static CUresult CUDAAPI ask_pointer(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    (void)data;
    (void)attribute;
    (void)address;
    return CUDA_ERROR_INVALID_VALUE;
}

/* The program's own copy from the host: rows with gaps of the same size between them. */
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

/* H2D copies hold up no mapping, and no mapping holds them up. */
static void test_in_alone(void)
{
    static char host[1 << 20];

    /* While the program copies nothing in by the engine, no other copy wants it. */
    EXPECT_U64(0, looks_of(1, 8 * PIECE));
    EXPECT_U64(1, pieces);
    ps_copy_gate_program_copies_in(4096);
    copy_rows_in(host, 64, 64);
    EXPECT_U64(0, looks_of(1, 8 * PIECE));
    copy_rows_in(host, 64, 65); /* the engine copies their sum */
    EXPECT(looks_of(1, 8 * PIECE) >= 3);
    EXPECT_U64(4, pieces);
    EXPECT(!ps_copy_gate_shut());
}

static void test_shut(void)
{
    EXPECT(is_open());
    EXPECT(ps_copy_gate_shut());
    EXPECT_U64(1, word_now());
    EXPECT_U64(0, word_of(PS_COPY_GATE_IN)); /* no mapping is known to wait for H2D copies */
    EXPECT(ps_copy_gate_shut());             /* another thread's */
    ps_copy_gate_open();
    EXPECT_U64(1, word_now());
    ps_copy_gate_open();
    EXPECT(is_open());
}

/* Mappings wait for H2D copies here: only that way's word is shut, and the pieces change places. */
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
    /* While the link is measured, only the measuring thread shuts the gate. */
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

/*
 * A thread whose mapping waits for another thread's lock, while that thread waits for the copies.
 */
static void test_forgotten(void)
{
    for (int i = 0; i < 3; i++) {
        const uint64_t since = ps_now_ns();
        ps_copy_gate_shut();
        EXPECT(COMES_TO(is_open()));
        EXPECT(ps_now_ns() - since > 1000000u);
        /* Another mapping does not shut the gate again while the first one goes on. */
        ps_copy_gate_shut();
        EXPECT(is_open());
        ps_copy_gate_open();
        ps_copy_gate_open();
        ps_copy_gate_shut();
        EXPECT_U64(1, word_now());
        ps_copy_gate_open();
        EXPECT(is_open());
        /* The watcher goes to sleep in the end, and is woken. */
        if (i == 1)
            usleep(300000);
    }
}

int main(void)
{
    stub_driver_with(&(struct ps_real_cuda){.cuPointerGetAttribute = ask_pointer,
                                            .cuMemHostRegister = take_memory,
                                            .cuMemHostUnregister = give_memory_back,
                                            .cuMemHostGetDevicePointer = tell_address,
                                            .cuMemcpyAsync = copy_piece,
                                            .cuStreamWaitValue32 = wait_for_value});
    test_none();
    make();
    test_in_alone();
    test_pieces();
    test_shut();
    test_measured();
    test_forgotten();
    return expect_status();
}
