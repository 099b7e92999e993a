# SPDX-License-Identifier: GPL-2.0
#
# Runs bindgen over include/bindings.h.
#
# The kernel's own Makefile lists the compiler flags that bindgen has to skip, and distributions
# do not ship that list with their headers. So the other way round: of the flags that the C
# objects are compiled with, only those are kept which decide what the headers mean.

bindgen_keep_flags := -Wp,-MMD,% -I% -D% -U% -include -isystem -nostdinc %.h -std=% \
	-m32 -m64 -mno-sse -mno-sse2 -mno-mmx -mno-80387 -mno-avx \
	-funsigned-char -fsigned-char -fshort-wchar -fshort-enums \
	-fms-extensions -fms-anonymous-structs

bindgen_target_x86 := x86_64-linux-gnu
bindgen_target_arm64 := aarch64-linux-gnu
bindgen_target_riscv := riscv64-linux-gnu
bindgen_target_loongarch := loongarch64-linux-gnusf
bindgen_target_um := $(bindgen_target_$(SUBARCH))

bindgen_c_flags = $(filter $(bindgen_keep_flags),$(c_flags)) \
	-w --target=$(bindgen_target_$(SRCARCH)) -fno-builtin -D__BINDGEN__ -DMODULE

quiet_cmd_bindgen = BINDGEN $@
      cmd_bindgen = \
	$(BINDGEN) $< $(bindgen_parameters) --no-debug '.*' -o $@ -- $(bindgen_c_flags)

$(obj)/include/bindings_generated.rs: private bindgen_parameters = \
	$(shell grep -Ev '^\#|^$$' $(src)/include/bindgen_parameters)
$(obj)/include/bindings_generated.rs: $(src)/include/bindings.h \
	$(src)/include/bindgen_parameters FORCE
	$(call if_changed_dep,bindgen)
