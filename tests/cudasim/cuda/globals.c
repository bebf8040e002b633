#include "globals.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "../cudart/fatbin.h"
#include "../kernel_abi.h"
#include "engine.h"
#include "memory.h"

#define FATBIN_WRAPPER 0x466243b1u
#define FATBIN_CONTAINER 0xba55ed50u
#define CAPABILITY 90u

/* Relocations of 8 bytes with an address (read from output of nvcc 13.0). */
#define RELOCATION_64 2u
#define RELOCATION_GENERIC 4u

/* In st_other: a __managed__ variable, which is not simulated. */
#define OTHER_MANAGED 0x4u

struct variable {
    char *name;
    size_t bytes;
    unsigned char *initial; /* NULL: zeros */
    unsigned section;
    uint64_t value; /* its place in the section */
};

/* A word of a variable's initial value that is the address of another one. */
struct address_word {
    size_t variable, at;
    size_t named;
    uint64_t addend;
};

struct cudasim_variables {
    const struct cudasim_globals *globals;
    CUcontext context;
    bool alive;
    LIST_ENTRY(cudasim_variables) link;
    uintptr_t address[];
};

struct cudasim_globals {
    size_t count, words;
    struct variable *variable;
    struct address_word *word;
    LIST_HEAD(, cudasim_variables) copies;
    LIST_ENTRY(cudasim_globals) link;
};

static LIST_HEAD(, cudasim_globals) all_globals = LIST_HEAD_INITIALIZER(all_globals);

/* ---- images ---- */

struct elf {
    const unsigned char *image;
    size_t bytes;
    Elf64_Ehdr header;
};

static bool read_at(const struct elf *elf, uint64_t offset, void *to, size_t bytes)
{
    if (offset > elf->bytes || bytes > elf->bytes - offset)
        return false;
    memcpy(to, elf->image + offset, bytes);
    return true;
}

static bool section_at(const struct elf *elf, unsigned index, Elf64_Shdr *section)
{
    return index < elf->header.e_shnum &&
           read_at(elf, elf->header.e_shoff + (uint64_t)index * sizeof *section, section, sizeof *section) &&
           (section->sh_type == SHT_NOBITS ||
            (section->sh_offset <= elf->bytes && section->sh_size <= elf->bytes - section->sh_offset));
}

/* Returns the string at an offset of a string table, or NULL. */
static const char *string_at(const struct elf *elf, unsigned table, uint64_t offset)
{
    Elf64_Shdr strings;
    if (!section_at(elf, table, &strings) || strings.sh_type != SHT_STRTAB || offset >= strings.sh_size)
        return NULL;
    const char *string = (const char *)elf->image + strings.sh_offset + offset;
    return memchr(string, '\0', strings.sh_size - offset) ? string : NULL;
}

/* Returns whether variables lie in the section. */
static bool holds_variables(const struct elf *elf, unsigned index, Elf64_Shdr *section)
{
    const char *name =
        section_at(elf, index, section) ? string_at(elf, elf->header.e_shstrndx, section->sh_name) : NULL;
    return name && (!strcmp(name, ".nv.global") || !strcmp(name, ".nv.global.init") || !strcmp(name, ".nv.constant3"));
}

static CUresult add_variable(struct cudasim_globals *globals, const struct elf *elf, const Elf64_Sym *symbol,
                             const char *name)
{
    Elf64_Shdr section;
    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || !symbol->st_size || (symbol->st_other & OTHER_MANAGED) ||
        !holds_variables(elf, symbol->st_shndx, &section))
        return CUDA_SUCCESS;
    if (!name || symbol->st_value > section.sh_size || symbol->st_size > section.sh_size - symbol->st_value)
        return CUDA_ERROR_INVALID_IMAGE;
    struct variable *grown = realloc(globals->variable, (globals->count + 1) * sizeof *grown);
    if (!grown)
        return CUDA_ERROR_OUT_OF_MEMORY;
    globals->variable = grown;
    struct variable *made = &grown[globals->count];
    *made = (struct variable){
        .name = strdup(name), .bytes = symbol->st_size, .section = symbol->st_shndx, .value = symbol->st_value};
    if (!made->name)
        return CUDA_ERROR_OUT_OF_MEMORY;
    globals->count++;
    if (section.sh_type == SHT_NOBITS)
        return CUDA_SUCCESS;
    made->initial = malloc(made->bytes);
    if (!made->initial)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(made->initial, elf->image + section.sh_offset + symbol->st_value, made->bytes);
    return CUDA_SUCCESS;
}

static CUresult read_symbols(struct cudasim_globals *globals, const struct elf *elf, const Elf64_Shdr *table)
{
    CUresult result = CUDA_SUCCESS;
    Elf64_Sym symbol;
    for (uint64_t at = 0; result == CUDA_SUCCESS && at + sizeof symbol <= table->sh_size; at += sizeof symbol) {
        memcpy(&symbol, elf->image + table->sh_offset + at, sizeof symbol);
        result = add_variable(globals, elf, &symbol, string_at(elf, table->sh_link, symbol.st_name));
    }
    return result;
}

/* Returns the index of the variable that holds the place of a section, or the count. */
static size_t variable_at(const struct cudasim_globals *globals, unsigned section, uint64_t value)
{
    size_t i = 0;
    while (i < globals->count && !(globals->variable[i].section == section &&
                                   value - globals->variable[i].value < globals->variable[i].bytes))
        i++;
    return i;
}

/* Notes an address among the initial values. */
static CUresult add_word(struct cudasim_globals *globals, const struct elf *elf, const Elf64_Shdr *table,
                         const Elf64_Rela *relocation)
{
    const uint32_t type = (uint32_t)ELF64_R_TYPE(relocation->r_info);
    Elf64_Shdr symbols;
    Elf64_Sym symbol;
    if (!section_at(elf, table->sh_link, &symbols) || symbols.sh_type != SHT_SYMTAB ||
        !read_at(elf, symbols.sh_offset + ELF64_R_SYM(relocation->r_info) * sizeof symbol, &symbol, sizeof symbol))
        return CUDA_ERROR_INVALID_IMAGE;
    const size_t holder = variable_at(globals, table->sh_info, relocation->r_offset),
                 named = variable_at(globals, symbol.st_shndx, symbol.st_value);
    if ((type != RELOCATION_64 && type != RELOCATION_GENERIC) || holder == globals->count || named == globals->count)
        return CUDA_ERROR_NOT_SUPPORTED;
    const size_t at = relocation->r_offset - globals->variable[holder].value;
    if (at + sizeof(uint64_t) > globals->variable[holder].bytes)
        return CUDA_ERROR_INVALID_IMAGE;
    struct address_word *grown = realloc(globals->word, (globals->words + 1) * sizeof *grown);
    if (!grown)
        return CUDA_ERROR_OUT_OF_MEMORY;
    globals->word = grown;
    grown[globals->words++] = (struct address_word){
        holder, at, named, symbol.st_value - globals->variable[named].value + (uint64_t)relocation->r_addend};
    return CUDA_SUCCESS;
}

static CUresult read_addresses(struct cudasim_globals *globals, const struct elf *elf, const Elf64_Shdr *table)
{
    CUresult result = CUDA_SUCCESS;
    Elf64_Shdr section;
    Elf64_Rela relocation;
    if (!holds_variables(elf, table->sh_info, &section))
        return CUDA_SUCCESS;
    for (uint64_t at = 0; result == CUDA_SUCCESS && at + sizeof relocation <= table->sh_size; at += sizeof relocation) {
        memcpy(&relocation, elf->image + table->sh_offset + at, sizeof relocation);
        result = add_word(globals, elf, table, &relocation);
    }
    return result;
}

static CUresult read_cubin(struct cudasim_globals *globals, const struct elf *elf)
{
    CUresult result = CUDA_SUCCESS;
    Elf64_Shdr section;
    /* All symbols come before the addresses that name them. */
    for (unsigned pass = 0; pass < 2; pass++)
        for (unsigned i = 0; result == CUDA_SUCCESS && i < elf->header.e_shnum; i++) {
            if (!section_at(elf, i, &section))
                result = CUDA_ERROR_INVALID_IMAGE;
            else if (pass == 0 && section.sh_type == SHT_SYMTAB)
                result = read_symbols(globals, elf, &section);
            else if (pass == 1 && section.sh_type == SHT_RELA)
                result = read_addresses(globals, elf, &section);
        }
    return result;
}

/* Finds the cubin in an image. Returns false without one. */
static bool find_cubin(const void *image, size_t bytes, struct elf *elf)
{
    const void *container = image;
    struct cudasim_image found;
    uint32_t magic;

    if (bytes < sizeof magic)
        return false;
    memcpy(&magic, image, sizeof magic);
    if (magic == FATBIN_WRAPPER && cudasim_fatbin_container(image, &container, &bytes))
        return false;
    if (magic == FATBIN_CONTAINER) {
        uint16_t header_bytes;
        uint64_t images_bytes;
        memcpy(&header_bytes, (const char *)image + 6, sizeof header_bytes);
        memcpy(&images_bytes, (const char *)image + 8, sizeof images_bytes);
        bytes = header_bytes + images_bytes;
    }
    if (magic == FATBIN_WRAPPER || magic == FATBIN_CONTAINER) {
        if (cudasim_fatbin_find_cubin(container, bytes, CAPABILITY, &found))
            return false;
        image = found.bytes;
        bytes = found.size;
    } else if (memcmp(&magic, ELFMAG, sizeof magic) != 0) {
        return false;
    }
    *elf = (struct elf){.image = image, .bytes = bytes};
    return read_at(elf, 0, &elf->header, sizeof elf->header) && elf->header.e_shentsize == sizeof(Elf64_Shdr);
}

static void discard(struct cudasim_globals *globals)
{
    for (size_t i = 0; i < globals->count; i++) {
        free(globals->variable[i].name);
        free(globals->variable[i].initial);
    }
    free(globals->variable);
    free(globals->word);
    free(globals);
}

CUresult cudasim_globals_read(const void *image, size_t bytes, struct cudasim_globals **globals)
{
    struct elf elf;

    *globals = NULL;
    if (!find_cubin(image, bytes < SIZE_MAX / 2 ? bytes : SIZE_MAX / 2, &elf))
        return CUDA_SUCCESS;
    struct cudasim_globals *made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = read_cubin(made, &elf);
    if (result != CUDA_SUCCESS || !made->count) {
        discard(made);
        return result;
    }
    LIST_INSERT_HEAD(&all_globals, made, link);
    *globals = made;
    return CUDA_SUCCESS;
}

/* ---- copies ---- */

static void free_copy(struct cudasim_variables *copy)
{
    copy->alive = false;
    for (size_t i = 0; i < copy->globals->count && copy->address[i]; i++) {
        cudasim_range_remove(copy->address[i]);
        cudasim_arena_give(copy->address[i], copy->globals->variable[i].bytes);
    }
}

static bool place(struct cudasim_variables *copy, size_t i)
{
    const struct variable *variable = &copy->globals->variable[i];
    const uintptr_t base = cudasim_arena_take(variable->bytes);
    const struct cudasim_range range = {.base = base,
                                        .size = variable->bytes,
                                        .kind = CUDASIM_RANGE_GLOBAL,
                                        .device = copy->context->device,
                                        .object = copy->context};
    if (!base || cudasim_range_add(range)) {
        if (base)
            cudasim_arena_give(base, variable->bytes);
        return false;
    }
    copy->address[i] = base;
    if (variable->initial)
        memcpy((void *)base, variable->initial, variable->bytes);
    else
        memset((void *)base, 0, variable->bytes);
    return true;
}

struct cudasim_variables *cudasim_globals_in(struct cudasim_globals *globals, CUcontext context)
{
    struct cudasim_variables *copy;

    LIST_FOREACH (copy, &globals->copies, link)
        if (copy->alive && copy->context == context)
            return copy;
    copy = calloc(1, sizeof *copy + globals->count * sizeof copy->address[0]);
    if (!copy)
        return NULL;
    copy->globals = globals;
    copy->context = context;
    LIST_INSERT_HEAD(&globals->copies, copy, link);
    for (size_t i = 0; i < globals->count; i++)
        if (!place(copy, i)) {
            free_copy(copy);
            return NULL;
        }
    for (size_t i = 0; i < globals->words; i++) {
        const struct address_word *word = &globals->word[i];
        const uint64_t address = copy->address[word->named] + word->addend;
        memcpy((void *)(copy->address[word->variable] + word->at), &address, sizeof address);
    }
    copy->alive = true;
    return copy;
}

CUresult cudasim_variables_find(const struct cudasim_variables *variables, const char *name, CUdeviceptr *address,
                                size_t *bytes)
{
    for (size_t i = 0; i < variables->globals->count; i++) {
        if (strcmp(variables->globals->variable[i].name, name) != 0)
            continue;
        if (address)
            *address = (CUdeviceptr)variables->address[i];
        if (bytes)
            *bytes = variables->globals->variable[i].bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

void cudasim_globals_unload(struct cudasim_globals *globals)
{
    struct cudasim_variables *copy;

    /* A wait releases the lock. Copies are only added, and at the front. */
    LIST_FOREACH (copy, &globals->copies, link)
        if (copy->alive)
            cudasim_wait_context(copy->context);
    LIST_FOREACH (copy, &globals->copies, link)
        if (copy->alive)
            free_copy(copy);
}

void cudasim_globals_end_context(CUcontext context)
{
    struct cudasim_globals *globals;
    struct cudasim_variables *copy;

    LIST_FOREACH (globals, &all_globals, link)
        LIST_FOREACH (copy, &globals->copies, link)
            if (copy->alive && copy->context == context)
                free_copy(copy);
}

void *cudasim_variable(const char *name)
{
    const struct cudasim_operation *kernel = cudasim_kernel_running();
    CUdeviceptr address = 0;

    if (kernel && kernel->kernel.variables)
        cudasim_variables_find(kernel->kernel.variables, name, &address, NULL);
    return (void *)address;
}
