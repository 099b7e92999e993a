# SPDX-License-Identifier: GPL-2.0
#
# "make help" lists the targets. The kernel's own build reads Kbuild, not this file.

KDIR ?= /lib/modules/$(shell uname -r)/build

# One system test instead of all, and the kernel it runs on.
T ?=
KERNEL ?= 7.2

# 1: the headlines of the benchmark only.
QUICK ?=

# Hours in which "make soak" begins new items.
HOURS ?= 8

# Kernels for which "make deb" packages a built module: releases, all or none.
MODULES ?= all

.DELETE_ON_ERROR:
.PHONY: modules help demo test soak bench vm kunit lint picture rustdoc deb repo install uninstall clean distclean

modules:
	@scripts/release/host-module "$(KDIR)"

help:
	@echo 'rsiw: software iWARP, RDMA over ordinary TCP.'
	@echo
	@echo '  make            build/RELEASE/rsiw.ko for the running kernel (KDIR=DIR: for another)'
	@echo '  make install    put it into the kernel'\''s modules; then "rdma link add" finds it'
	@echo '  make uninstall  take it away again'
	@echo
	@echo 'In a virtual machine with a stock Debian kernel; as root, on Debian 12 or 13:'
	@echo '  make demo       from nothing to RDMA traffic and an NFS mount over rsiw'
	@echo '  make vm         a shell in the guest with the module loaded (KERNEL=7.3, KERNEL=debug)'
	@echo '  make test       everything that has to hold before a change goes in'
	@echo '  make test T=02-rping   one system test (T=all: every one; KERNEL=uml: in User-mode Linux)'
	@echo '  make soak       repeats and long sweeps for HOURS=8 hours, with a report in build/soak/; gates nothing'
	@echo '  make bench      rsiw against TCP, siw and rxe, into docs/performance/ (QUICK=1: the headlines)'
	@echo '  make kunit      the module'\''s KUnit suites (KERNEL=debug: on the x86 debug kernel)'
	@echo '  make picture    draws docs/architecture.svg and docs/states.md from the sources'
	@echo '  make rustdoc    pages of the module and of the protocol crate, in build/rustdoc'
	@echo '  make lint       clippy and W=1 (amd64 and, cross-built, arm64), rustfmt, checkpatch, shellcheck, cargo clippy'
	@echo
	@echo '  make deb        Debian packages, in build/deb: rsiw-dkms, rsiw-utils, and modules for every kernel of'
	@echo '                  the archive that has Rust, amd64 and arm64 (MODULES=none: for none; MODULES="RELEASE...": for these)'
	@echo '                  RSIW_DEB_REVISION=N: appended to the version, higher for newer modules of the same version'
	@echo '  make repo       an APT repository of them, in build/repo (RSIW_KEY=ID: signed)'
	@echo
	@echo '  make clean      remove build/ (what is costly to make stays in the cache)'
	@echo '  make distclean  remove the cache as well'
	@echo
	@echo 'What takes long to make is kept in $${RSIW_CACHE:-/var/cache/rsiw}.'

demo:
	@scripts/lab/demo

test:
	@scripts/test --kernel "$(KERNEL)" $(T)

soak:
	@scripts/tests/soak "$(HOURS)"

bench:
	@QUICK="$(QUICK)" scripts/lab/bench

vm:
	@scripts/module "$(KERNEL)"
	@scripts/lab/vm shell --kernel "$(KERNEL)"

kunit:
	@scripts/tests/kunit $(filter debug,$(KERNEL))

lint:
	@scripts/lint

picture:
	@scripts/tests/checks/picture
	@scripts/tests/checks/states

rustdoc:
	@scripts/tests/checks/rustdoc "$(KERNEL)"

deb:
	@rm -rf build/deb build/modules/not-built
ifeq ($(MODULES),none)
	@scripts/release/deb
else ifeq ($(MODULES),all)
	@scripts/release/modules --all || [ -s build/modules/not-built ]
	@scripts/release/deb $$(scripts/release/modules --built)
else
	@scripts/release/modules $(MODULES)
	@scripts/release/deb $(MODULES)
endif
	@scripts/release/lintian
	@[ ! -s build/modules/not-built ] || { echo "No package for:"; cat build/modules/not-built; exit 1; } >&2

repo:
	@scripts/release/repo

install:
	@scripts/release/install "$(KDIR)"

uninstall:
	@scripts/release/install "$(KDIR)" remove

clean:
	rm -rf build rust/wire/target

distclean: clean
	@scripts/release/distclean
