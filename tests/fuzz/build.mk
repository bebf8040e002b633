# The fuzz targets: $(OUT)/NAME/target for each tests/fuzz/NAME/target.c, with clang's libFuzzer and
# its sanitizers for addresses and undefined behaviour. Used alone, from the top directory:
#   make -f tests/fuzz/build.mk OUT=build/fuzz [NAME]...
# A target is linked with the sources that are named for it below, and with no others of the library.
# V=1 shows the commands.

OUT ?= build/fuzz
CLANG ?= clang
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.SECONDARY:
.DELETE_ON_ERROR:

log := shim/base/log.c shim/base/output.c shim/base/plain_text.c
json := shim/base/json.c shim/base/output.c shim/base/plain_text.c tests/fuzz/json_reader.c
rules := policy/span_rules.c policy/glob.c policy/recording/classes.c

sources_fatbin :=
sources_frameworks := tests/fuzz/silent_log.c shim/base/real_dlsym.c shim/base/per_device.c
sources_glob := policy/glob.c
sources_host_memory :=
sources_json := $(json)
sources_kernel_names := shim/kernels/known_kernels.c shim/kernels/torch_tensor_lists.c
sources_kernel_params := shim/kernels/kernel_params.c shim/kernels/kernel_scan.c shim/kernels/cubin.c shim/cuda/libelf.c shim/base/real_dlsym.c
sources_layer_names := shim/plan/layer_names.c policy/glob.c $(log)
sources_live_directory :=
sources_live_page := shim/observe/live_json.c scripts/command/top_table.c $(json)
sources_log := shim/base/log.c shim/base/plain_text.c
sources_metrics := shim/observe/live_files.c shim/observe/live_json.c shim/base/log.c shim/base/bytes_text.c $(filter-out %output.c,$(json))
sources_notes := tests/fuzz/silent_log.c
sources_nvtx := tests/fuzz/silent_log.c shim/base/real_dlsym.c
sources_ranks := shim/base/ranks.c
sources_recording := $(wildcard policy/*.c policy/*/*.c)
sources_rules := $(rules)
sources_settings := shim/base/settings.c $(log) $(rules)
sources_task :=
sources_torch_settings :=
sources_trace := shim/observe/trace_file.c $(json)

targets := $(patsubst tests/fuzz/%/target.c,%,$(wildcard tests/fuzz/*/target.c))

cuda_home := $(shell scripts/dev/cuda-home)
cuda_includes := $(addprefix -isystem ,$(wildcard $(cuda_home)/include $(cuda_home)/extras/CUPTI/include))
sanitizers := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
flags := -std=gnu11 -D_GNU_SOURCE= -O1 -gline-tables-only -Iinclude -Ishim -Iscripts/command -I. $(cuda_includes) $(sanitizers) \
    -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror $(FUZZ_CFLAGS)

Q := $(if $(filter 1,$(V)),,@)

.PHONY: all $(targets) FORCE
all: $(targets)
$(targets): %: $(OUT)/%/target

# Rebuilds everything when the commands change.
$(OUT)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(CLANG) $(flags)' | cmp -s - $@ || printf '%s\n' '$(CLANG) $(flags)' >$@

$(OUT)/obj/%.o: %.c $(OUT)/flags
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(flags) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<

.SECONDEXPANSION:
$(OUT)/%/target: $(OUT)/obj/tests/fuzz/%/target.o $$(addprefix $(OUT)/obj/,$$(addsuffix .o,$$(basename $$(sources_$$*))))
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(sanitizers) -fsanitize=fuzzer -o $@ $^ -lpthread -ldl -lm

-include $(shell find $(OUT)/obj -name '*.d' 2>/dev/null)
