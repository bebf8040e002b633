/*
 * The simulated device: variables of modules and libraries, read from a cubin that is put together
 * here. tests/cudasim/selftest.cu has those of programs, from nvcc.
 */
#include <elf.h>
#include <string.h>

#include "unit_device.h"
#include "unit_words.h"

enum { NAMES = 1, SYMBOLS, INITIAL, ZEROS, ADDRESSES, SECTIONS };

/* Two variables with values, of which the second is an address in the first; and one of zeros. */
struct cubin {
    Elf64_Ehdr header;
    Elf64_Shdr section[SECTIONS];
    char names[128];
    Elf64_Sym symbol[4];
    uint64_t initial[3];
    Elf64_Rela address;
};

static struct cubin cubin;

/* Adds a name to the table. Returns its place. */
static uint32_t named(uint32_t *end, const char *name)
{
    const uint32_t at = *end;
    memcpy(cubin.names + at, name, strlen(name) + 1);
    *end += (uint32_t)strlen(name) + 1;
    return at;
}

static void make_cubin(void)
{
    uint32_t end = 1;
    cubin = (struct cubin){
        .header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB},
                   .e_machine = 190,
                   .e_shoff = offsetof(struct cubin, section),
                   .e_shentsize = sizeof(Elf64_Shdr),
                   .e_shnum = SECTIONS,
                   .e_shstrndx = NAMES},
        .initial = {11, 12, 0},
    };
    cubin.section[NAMES] =
        (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = offsetof(struct cubin, names), .sh_size = sizeof cubin.names};
    cubin.section[SYMBOLS] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                          .sh_link = NAMES,
                                          .sh_offset = offsetof(struct cubin, symbol),
                                          .sh_size = sizeof cubin.symbol};
    cubin.section[INITIAL] = (Elf64_Shdr){.sh_name = named(&end, ".nv.global.init"),
                                          .sh_type = SHT_PROGBITS,
                                          .sh_offset = offsetof(struct cubin, initial),
                                          .sh_size = sizeof cubin.initial};
    cubin.section[ZEROS] = (Elf64_Shdr){.sh_name = named(&end, ".nv.global"), .sh_type = SHT_NOBITS, .sh_size = BYTES};
    cubin.section[ADDRESSES] = (Elf64_Shdr){.sh_type = SHT_RELA,
                                            .sh_link = SYMBOLS,
                                            .sh_info = INITIAL,
                                            .sh_offset = offsetof(struct cubin, address),
                                            .sh_size = sizeof cubin.address};
    const unsigned char object = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT);
    cubin.symbol[1] = (Elf64_Sym){named(&end, "pair"), object, 0, INITIAL, 0, 16};
    cubin.symbol[2] = (Elf64_Sym){named(&end, "pointer"), object, 0, INITIAL, 16, 8};
    cubin.symbol[3] = (Elf64_Sym){named(&end, "zeros"), object, 0, ZEROS, 0, BYTES};
    cubin.address = (Elf64_Rela){16, ELF64_R_INFO(1, 4), 8};
}

/* Adds 1 to the module's first zero, and stores what it was. */
static void run_count_up(const struct cudasim_launch *launch, void *const *params)
{
    (void)launch;
    uint32_t *out = *(uint32_t *const *)params[0], *zeros = cudasim_variable("zeros");
    *out = zeros ? zeros[0]++ : 1000;
}

static const struct cudasim_param count_up_params[] = {{0, 8}};
static const struct cudasim_kernel count_up_code = {CUDASIM_KERNEL_ABI, 1, count_up_params, run_count_up};

/* Launches the kernel, and returns the word that it stored. */
static uint32_t count_up(CUfunction function)
{
    CUdeviceptr out = allocate();
    uint32_t word = 0;
    void *params[] = {&out};
    EXPECT_OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    EXPECT_OK(cuMemcpyDtoH(&word, out, sizeof word));
    EXPECT_OK(cuMemFree(out));
    return word;
}

static CUlibrary load_library(void)
{
    CUlibrary library = NULL;
    EXPECT_OK(cuLibraryLoadData(&library, &cubin, NULL, NULL, 0, NULL, NULL, 0));
    return library;
}

static void variables_begin_with_the_images_values(void)
{
    open_device(&device);
    make_cubin();
    CUmodule module;
    CUdeviceptr pair, pointer, zeros;
    size_t bytes;
    uint64_t words[2], led_to;
    unsigned int type = 0;
    CUcontext context;
    EXPECT_OK(cuModuleLoadData(&module, &cubin));
    EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&pair, &bytes, module, "pairs"));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuModuleGetGlobal(NULL, NULL, module, "pair"));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuModuleGetGlobal(&pair, &bytes, NULL, "pair"));
    EXPECT_OK(cuModuleGetGlobal(&pair, NULL, module, "pair"));
    EXPECT_OK(cuModuleGetGlobal(NULL, &bytes, module, "pair"));
    EXPECT_U64(16, bytes);
    EXPECT_OK(cuModuleGetGlobal(&pointer, &bytes, module, "pointer"));
    EXPECT_OK(cuModuleGetGlobal(&zeros, &bytes, module, "zeros"));
    EXPECT_U64(BYTES, bytes);
    EXPECT_OK(cuMemcpyDtoH(words, pair, sizeof words));
    EXPECT_OK(cuMemcpyDtoH(&led_to, pointer, sizeof led_to));
    EXPECT_U64(11, words[0]);
    EXPECT_U64(12, words[1]);
    EXPECT_U64(pair + 8, led_to);
    EXPECT_U64(WORDS, words_with(zeros, 0));
    EXPECT_OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, zeros + 4));
    EXPECT_INT(CU_MEMORYTYPE_DEVICE, type);
    EXPECT_OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, zeros));
    EXPECT(context == device.context);
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(zeros));
    /* It ends with its module, after the work that may use it. */
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUevent event = new_event();
    EXPECT_OK(launch_fill(&device, zeros, WORDS, 1, stream));
    EXPECT_OK(cuEventRecord(event, stream));
    EXPECT_OK(cuModuleUnload(module));
    EXPECT_OK(cuEventQuery(event));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, zeros));
    EXPECT_OK(launch_fill(&device, zeros, 1, 1, NULL));
    EXPECT_CUDA(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
}

/* Kernels use the variables of the module that they were looked up in. */
static void each_module_has_a_copy(void)
{
    open_device(&device);
    make_cubin();
    CUmodule module[2];
    CUfunction function[2], again, none = (CUfunction)cudasim_register_kernel("count_up", &count_up_code, NULL, 0);
    CUdeviceptr zeros;
    uint32_t seven = 7;
    for (int i = 0; i < 2; i++) {
        EXPECT_OK(cuModuleLoadData(&module[i], &cubin));
        EXPECT_OK(cuModuleGetFunction(&function[i], module[i], "count_up"));
    }
    EXPECT_OK(cuModuleGetFunction(&again, module[0], "count_up"));
    EXPECT(again == function[0] && function[0] != function[1]);
    EXPECT_U64(0, count_up(function[0]));
    EXPECT_U64(1, count_up(function[0]));
    EXPECT_OK(cuModuleGetGlobal(&zeros, NULL, module[0], "zeros"));
    EXPECT_OK(cuMemcpyHtoD(zeros, &seven, sizeof seven));
    EXPECT_U64(7, count_up(function[0]));
    EXPECT_U64(0, count_up(function[1]));
    EXPECT_U64(1000, count_up(none)); /* its image has no such variable */
    EXPECT_OK(cuModuleUnload(module[0]));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function[0], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT_U64(1, count_up(function[1]));
    /* The program's own image has one too. */
    CUkernel kernel = cudasim_register_kernel("count_up", &count_up_code, &cubin, sizeof cubin);
    CUlibrary library = cudasim_register_image(&cubin, sizeof cubin);
    EXPECT_U64(0, count_up((CUfunction)kernel));
    EXPECT_OK(cuLibraryGetGlobal(&zeros, NULL, library, "zeros"));
    EXPECT_OK(cuMemcpyHtoD(zeros, &seven, sizeof seven));
    EXPECT_U64(7, count_up((CUfunction)kernel));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload(library));
}

/* A library has a copy in each context, a green one shares its primary's, and each ends with it. */
static void a_library_has_a_copy_in_each_context(void)
{
    open_device(&device);
    make_cubin();
    cudasim_register_kernel("count_up", &count_up_code, NULL, 0);
    CUlibrary library = load_library();
    CUkernel kernel;
    CUmodule module;
    CUcontext other, green_context;
    CUdeviceptr here, there, in_green;
    unsigned int type;
    EXPECT_OK(cuLibraryGetKernel(&kernel, library, "count_up"));
    EXPECT_OK(cuLibraryGetModule(&module, library));
    EXPECT_CUDA(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload(module));
    EXPECT_U64(0, count_up((CUfunction)kernel));
    EXPECT_OK(cuLibraryGetGlobal(&here, NULL, library, "zeros"));
    EXPECT_OK(cuModuleGetGlobal(&there, NULL, module, "zeros"));
    EXPECT_U64(here, there);
    EXPECT_OK(cuCtxCreate(&other, NULL, 0, 0));
    EXPECT_OK(cuLibraryGetGlobal(&there, NULL, library, "zeros"));
    EXPECT(here != there);
    EXPECT_U64(0, count_up((CUfunction)kernel));
    EXPECT_OK(cuCtxDestroy(other));
    EXPECT_OK(cuCtxSetCurrent(device.context));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, there));
    EXPECT_U64(1, count_up((CUfunction)kernel));
    CUdevResource all;
    CUdevResourceDesc descriptor;
    CUgreenCtx green;
    EXPECT_OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT_OK(cuDevResourceGenerateDesc(&descriptor, &all, 1));
    EXPECT_OK(cuGreenCtxCreate(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT_OK(cuCtxFromGreenCtx(&green_context, green));
    EXPECT_OK(cuCtxPushCurrent(green_context));
    EXPECT_OK(cuLibraryGetGlobal(&in_green, NULL, library, "zeros"));
    EXPECT_U64(here, in_green);
    EXPECT_U64(2, count_up((CUfunction)kernel));
    EXPECT_OK(cuCtxPopCurrent(NULL));
    EXPECT_OK(cuLibraryUnload(library));
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, here));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, cuLibraryGetGlobal(&here, NULL, library, "zeros"));
}

static CUresult load(void)
{
    CUmodule module;
    CUresult result = cuModuleLoadData(&module, &cubin);
    if (result == CUDA_SUCCESS)
        EXPECT_OK(cuModuleUnload(module));
    return result;
}

static void damaged_images_are_refused(void)
{
    open_device(&device);
    make_cubin();
    EXPECT_OK(load());
    cubin.symbol[1].st_size = 1000;
    EXPECT_CUDA(CUDA_ERROR_INVALID_IMAGE, load());
    make_cubin();
    cubin.symbol[1].st_value = UINT64_MAX - 7;
    EXPECT_CUDA(CUDA_ERROR_INVALID_IMAGE, load());
    make_cubin();
    cubin.symbol[3].st_name = 4096;
    EXPECT_CUDA(CUDA_ERROR_INVALID_IMAGE, load());
    make_cubin();
    cubin.address.r_offset = 20; /* its 8 bytes leave the variable */
    EXPECT_CUDA(CUDA_ERROR_INVALID_IMAGE, load());
    make_cubin();
    cubin.address.r_info = ELF64_R_INFO(0, 4); /* no variable */
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, load());
    make_cubin();
    cubin.address.r_info = ELF64_R_INFO(1, 77); /* no address of 64 bits */
    EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, load());
}

int main(void)
{
    RUN_CASE(variables_begin_with_the_images_values);
    RUN_CASE(each_module_has_a_copy);
    RUN_CASE(a_library_has_a_copy_in_each_context);
    RUN_CASE(damaged_images_are_refused);
    return expect_status();
}
