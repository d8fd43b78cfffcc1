#!/bin/sh
# Every source is laid out as .clang-format says; `make format` repairs it.
git ls-files '*.h' '*.cc' | xargs clang-format-19 --dry-run -Werror --ferror-limit=1
