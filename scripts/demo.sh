#!/bin/sh
# The demonstration: four unequal workers on this machine train a small CNN, with equal batches and with isochron.
set -eu
cd "$(dirname "$0")/.."

echo "Training a small CNN on Fashion-MNIST on four unequal workers, with equal batches and with isochron in turn."
if [ -x build/dev/bin/isochron-worker ]; then
  echo "This takes about 2 minutes."
else
  echo "The first time it installs what is missing and builds the program, which takes about 4 minutes on two cores;"
  echo "the training takes 2 more."
fi
scripts/setup.sh build
scripts/build.py isochron isochron-worker
test -d data/fashion-mnist || scripts/data.py fashion-mnist
build/isochron compare --cluster hl8 --policy uniform,isochron --model cnn --dataset fashion-mnist \
  --optimizer adam --learning-rate 0.002 --global-batch 512 --steps 48 --rounds 1 --turn 12 --logs build/demo
build/isochron report build/demo/uniform.1.jsonl build/demo/isochron.1.jsonl -o build/demo/report.html
cat <<'EOF'

The report is build/demo/report.html: open it in a browser. Next, for instance:
  build/isochron launch --cluster hl8 -- train --model cnn --dataset fashion-mnist --serve 8080   the same run, live
  build/isochron simulate --cluster hl8 --policy uniform,omnilearn,isochron                       policies side by side
  docs/pytorch.md                                                                                 a script of your own
EOF
