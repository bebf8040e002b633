/*
 * Penstock as NVTX's injection library. The real NVTX of the toolkit's headers is in this program,
 * attached in the only way that needs no shared object. Ranges of each form, pushed, popped,
 * started and ended, are the layer that a launch of the thread would be in.
 */
#include <nvtx3/nvToolsExt.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "plan/layer_markers.h"

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

/* Returns the name of the layer that this thread is in, "" outside. */
static const char *here(void)
{
    struct ps_recorded_layer layer = ps_layer_markers_now(NULL);

    return layer.name ? layer.name : "";
}

static nvtxEventAttributes_t event(const char *ascii, const wchar_t *wide, nvtxStringHandle_t registered)
{
    nvtxEventAttributes_t e = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};

    if (ascii) {
        e.messageType = NVTX_MESSAGE_TYPE_ASCII;
        e.message.ascii = ascii;
    } else if (wide) {
        e.messageType = NVTX_MESSAGE_TYPE_UNICODE;
        e.message.unicode = wide;
    } else if (registered) {
        e.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
        e.message.registered = registered;
    }
    return e;
}

static void test_push_and_pop(void)
{
    nvtxEventAttributes_t ascii = event("layer 2 forward", NULL, NULL),
                          wide = event(NULL, L"layer 3 forward \x2713", NULL), none = event(NULL, NULL, NULL);

    EXPECT_TEXT("", here());
    EXPECT_INT(0, nvtxRangePushA("layer 1 forward"));
    EXPECT_TEXT("layer 1 forward", here());
    EXPECT_U64(1, ps_layer_markers_now(NULL).number);
    EXPECT(ps_layer_markers_now(NULL).direction == PENSTOCK_DIRECTION_FORWARD);
    EXPECT_INT(1, nvtxRangePushEx(&ascii));
    EXPECT_TEXT("layer 2 forward", here());
    EXPECT_INT(2, nvtxRangePushEx(&none));
    EXPECT_TEXT("layer 2 forward", here());
    EXPECT_INT(3, nvtxRangePushEx(&wide));
    EXPECT_TEXT("layer 3 forward ?", here());
    EXPECT_INT(4, nvtxRangePushW(L"layer 4 backward"));
    EXPECT_TEXT("layer 4 backward", here());
    EXPECT_INT(5, nvtxRangePushA("something else"));
    EXPECT_TEXT("layer 4 backward", here());
    EXPECT_INT(5, nvtxRangePop());
    EXPECT_INT(4, nvtxRangePop());
    EXPECT_TEXT("layer 3 forward ?", here());
    EXPECT_INT(3, nvtxRangePop());
    EXPECT_INT(2, nvtxRangePop());
    EXPECT_INT(1, nvtxRangePop());
    EXPECT_INT(0, nvtxRangePop());
    EXPECT_TEXT("", here());
}

static void test_domains(void)
{
    nvtxDomainHandle_t one = nvtxDomainCreateA("one"), two = nvtxDomainCreateW(L"two");
    nvtxStringHandle_t registered = nvtxDomainRegisterStringA(one, "layer 7 fwd"),
                       wide = nvtxDomainRegisterStringW(two, L"layer 8 bwd");
    nvtxEventAttributes_t seven = event(NULL, NULL, registered), eight = event(NULL, NULL, wide);

    EXPECT(one && two && one != two && registered && wide);
    EXPECT_INT(0, nvtxDomainRangePushEx(one, &seven));
    EXPECT_TEXT("layer 7 fwd", here());
    EXPECT_INT(0, nvtxDomainRangePushEx(two, &eight));
    EXPECT_TEXT("layer 8 bwd", here());
    EXPECT_INT(0, nvtxRangePushA("layer 9"));
    EXPECT_TEXT("layer 9", here());
    EXPECT_INT(0, nvtxDomainRangePop(one));
    EXPECT_TEXT("layer 9", here());
    EXPECT_INT(0, nvtxRangePop());
    EXPECT_TEXT("layer 8 bwd", here());
    EXPECT_INT(0, nvtxDomainRangePop(two));
    EXPECT_TEXT("", here());
}

static void test_start_and_end(void)
{
    nvtxDomainHandle_t domain = nvtxDomainCreateA("domain");
    nvtxEventAttributes_t three = event("layer 3 fwd", NULL, NULL), four = event(NULL, L"layer 4 fwd", NULL);
    nvtxRangeId_t ids[] = {nvtxRangeStartA("layer 1 fwd"), nvtxRangeStartW(L"layer 2 fwd"), nvtxRangeStartEx(&three),
                           nvtxDomainRangeStartEx(domain, &four)};
    static const char *const left[] = {"layer 4 fwd", "layer 4 fwd", "layer 3 fwd", "layer 1 fwd", ""};

    EXPECT_TEXT(left[0], here());
    nvtxRangeEnd(ids[1]);
    EXPECT_TEXT(left[1], here());
    nvtxDomainRangeEnd(domain, ids[3]);
    EXPECT_TEXT(left[2], here());
    nvtxRangeEnd(ids[2]);
    EXPECT_TEXT(left[3], here());
    nvtxRangeEnd(ids[0]);
    EXPECT_TEXT(left[4], here());
}

/*
 * If ranges are not asked for, NVTX learns that nothing wants them: it does nothing from then on.
 */
static void test_not_asked_for(void)
{
    EXPECT_INT(NVTX_NO_PUSH_POP_TRACKING, nvtxRangePushA("layer 1 forward"));
    EXPECT_TEXT("", here());
    EXPECT_U64(0, ps_layer_markers_figures().markers);
}

int main(void)
{
    static const struct {
        const char *layers, *disable;
        void (*test)(void);
    } cases[] = {
        {"nvtx:layer *", "0", test_push_and_pop},  {"nvtx:layer *", "0", test_domains},
        {"nvtx:layer *", "0", test_start_and_end}, {"auto", "0", test_not_asked_for},
        {"api", "0", test_not_asked_for},          {"nvtx:layer *", "1", test_not_asked_for},
    };

    unsetenv("NVTX_INJECTION64_PATH");
    InitializeInjectionNvtx2_fnptr = InitializeInjectionNvtx2;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            setenv("PENSTOCK_LAYERS", cases[i].layers, 1);
            setenv("PENSTOCK_DISABLE", cases[i].disable, 1);
            cases[i].test();
            _exit(expect_status());
        }
        EXPECT(child > 0 && waitpid(child, &status, 0) == child);
        EXPECT_INT(0, status);
    }
    return expect_status();
}
