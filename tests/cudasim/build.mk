# The simulated device: rules that make $(OUT)/sim/libcuda.so.1, libcudart.so.13, libcupti.so.13 and libnccl.so.2, and libcudart_static.a, the runtime
# for programs that have it inside them. $(OUT)/sim12 has the same as with CUDA 12.4: libcudart.so.12, libcupti.so.12, and a driver that lacks what is newer.
# Included by the top Makefile, or used alone from the top directory: make -f tests/cudasim/build.mk OUT=build/release
# The includer may set OUT, CC, CFLAGS (optimisation and -fsanitize=...), LDFLAGS, CUDA_HOME and V=1.

OUT ?= build/release
CUDA_HOME ?= /usr/local/cuda
SIM_DIR := tests/cudasim
SIM_OBJ := $(OUT)/sim/obj

SIM_CFLAGS := -O2 -g
SIM_CFLAGS += $(CFLAGS)
SIM_CFLAGS += -std=gnu11 -D_GNU_SOURCE -fPIC -fvisibility=hidden -pthread -MMD -MP
SIM_CFLAGS += -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
SIM_CFLAGS += -DCUDASIM_CUDA_VERSION=13000
SIM_CFLAGS += -I$(SIM_DIR) -isystem $(CUDA_HOME)/include
SIM_CFLAGS += $(if $(wildcard $(CUDA_HOME)/extras/CUPTI/include),-isystem $(CUDA_HOME)/extras/CUPTI/include)
# nodelete: workers, signal handlers and fork handlers stay in use whatever the program does with dlclose.
SIM_LDFLAGS = -shared -Wl,-z,nodelete,-Bsymbolic $(filter -fsanitize=%,$(CFLAGS)) $(LDFLAGS) -pthread

SIM_QUIET := $(if $(V),,@)
sim_say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$@')

SIM_CUDA_OBJS := $(patsubst $(SIM_DIR)/%.c,$(SIM_OBJ)/%.o,$(wildcard $(SIM_DIR)/cuda/*.c) $(SIM_DIR)/cudart/fatbin.c)
SIM_CUDART_OBJS := $(patsubst $(SIM_DIR)/%.c,$(SIM_OBJ)/%.o,$(wildcard $(SIM_DIR)/cudart/*.c))
SIM_CUPTI_OBJS := $(patsubst $(SIM_DIR)/%.c,$(SIM_OBJ)/%.o,$(wildcard $(SIM_DIR)/cupti/*.c))
SIM_NCCL_OBJS := $(patsubst $(SIM_DIR)/%.c,$(SIM_OBJ)/%.o,$(wildcard $(SIM_DIR)/nccl/*.c))
SIM12_LIBS := $(OUT)/sim12/libcuda.so.1 $(OUT)/sim12/libcudart.so.12 $(OUT)/sim12/libcupti.so.12
SIM_LIBS := $(OUT)/sim/libcuda.so.1 $(if $(SIM_CUDART_OBJS),$(OUT)/sim/libcudart.so.13) $(OUT)/sim/libcupti.so.13 $(OUT)/sim/libnccl.so.2 $(SIM12_LIBS)

.PHONY: sim
sim: $(SIM_LIBS)

$(OUT)/sim/libcuda.so.1: $(SIM_CUDA_OBJS)
	$(call sim_say,LD)
	$(SIM_QUIET)$(CC) $(SIM_LDFLAGS) -Wl,-soname,libcuda.so.1 -o $@ $(SIM_CUDA_OBJS) -ldl

$(OUT)/sim/libcudart.so.13: $(SIM_CUDART_OBJS) $(SIM_DIR)/cudart/cudart.map
	$(call sim_say,LD)
	$(SIM_QUIET)$(CC) $(SIM_LDFLAGS) -Wl,-soname,libcudart.so.13 -Wl,--version-script=$(SIM_DIR)/cudart/cudart.map \
	    -o $@ $(SIM_CUDART_OBJS) -ldl

$(OUT)/sim/libcudart_static.a: $(SIM_CUDART_OBJS)
	$(call sim_say,AR)
	$(SIM_QUIET)rm -f $@ && $(AR) rcs $@ $(SIM_CUDART_OBJS)

$(OUT)/sim/libcupti.so.13: $(SIM_CUPTI_OBJS) $(OUT)/sim/libcuda.so.1
	$(call sim_say,LD)
	$(SIM_QUIET)$(CC) $(SIM_LDFLAGS) -Wl,-soname,libcupti.so.13 -o $@ $(SIM_CUPTI_OBJS) $(OUT)/sim/libcuda.so.1

# As with CUDA 12.4: the objects that tell versions are rebuilt; the others are the same.
SIM12_ANEW := cuda/devices cuda/lookup cupti/callbacks
sim12_objs = $(filter $(SIM12_ANEW:%=$(OUT)/sim12/obj/%.o),$(1:$(SIM_OBJ)/%=$(OUT)/sim12/obj/%)) \
    $(filter-out $(SIM12_ANEW:%=$(SIM_OBJ)/%.o),$(1))
SIM12_CUDA_OBJS := $(call sim12_objs,$(SIM_CUDA_OBJS))
SIM12_CUPTI_OBJS := $(call sim12_objs,$(SIM_CUPTI_OBJS))

$(OUT)/sim12/libcuda.map: $(SIM_DIR)/cuda/newer.def
	@mkdir -p $(@D)
	$(call sim_say,GEN)
	$(SIM_QUIET)sed -nE -e '1i { global: *; local:' -e 's/^CUDASIM_NEWER\((\w+)\)/    \1;/p' -e '$$a };' $< >$@

$(OUT)/sim12/libcuda.so.1: $(SIM12_CUDA_OBJS) $(OUT)/sim12/libcuda.map
	$(call sim_say,LD)
	$(SIM_QUIET)$(CC) $(SIM_LDFLAGS) -Wl,-soname,libcuda.so.1 -Wl,--version-script=$(OUT)/sim12/libcuda.map -o $@ $(SIM12_CUDA_OBJS) -ldl

$(OUT)/sim12/libcudart.map: $(SIM_DIR)/cudart/cudart.map
	@mkdir -p $(@D)
	$(call sim_say,GEN)
	$(SIM_QUIET)sed 's/libcudart.so.13/libcudart.so.12/' $< >$@

$(OUT)/sim12/libcudart.so.12: $(SIM_CUDART_OBJS) $(OUT)/sim12/libcudart.map
	$(call sim_say,LD)
	$(SIM_QUIET)$(CC) $(SIM_LDFLAGS) -Wl,-soname,libcudart.so.12 -Wl,--version-script=$(OUT)/sim12/libcudart.map -o $@ $(SIM_CUDART_OBJS) -ldl

$(OUT)/sim12/libcupti.so.12: $(SIM12_CUPTI_OBJS) $(OUT)/sim12/libcuda.so.1
	$(call sim_say,LD)
	$(SIM_QUIET)$(CC) $(SIM_LDFLAGS) -Wl,-soname,libcupti.so.12 -o $@ $(SIM12_CUPTI_OBJS) $(OUT)/sim12/libcuda.so.1

$(OUT)/sim12/obj/%.o: $(SIM_DIR)/%.c
	@mkdir -p $(@D)
	$(call sim_say,CC)
	$(SIM_QUIET)$(CC) $(SIM_CFLAGS) -UCUDASIM_CUDA_VERSION -DCUDASIM_CUDA_VERSION=12040 -c -o $@ $<

$(OUT)/sim/libnccl.so.2: $(SIM_NCCL_OBJS) $(OUT)/sim/libcuda.so.1
	$(call sim_say,LD)
	$(SIM_QUIET)$(CC) $(SIM_LDFLAGS) -Wl,-soname,libnccl.so.2 -o $@ $(SIM_NCCL_OBJS) $(OUT)/sim/libcuda.so.1

$(SIM_OBJ)/%.o: $(SIM_DIR)/%.c
	@mkdir -p $(@D)
	$(call sim_say,CC)
	$(SIM_QUIET)$(CC) $(SIM_CFLAGS) -c -o $@ $<

-include $(SIM12_ANEW:%=$(OUT)/sim12/obj/%.d)
-include $(SIM_CUDA_OBJS:.o=.d) $(SIM_CUDART_OBJS:.o=.d) $(SIM_CUPTI_OBJS:.o=.d) $(SIM_NCCL_OBJS:.o=.d)
