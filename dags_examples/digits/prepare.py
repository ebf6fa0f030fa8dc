"""Split the handwritten digits (1,797 images of 8 x 8) into training and test sets."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from results import report
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--test-share", type=float, default=0.2)
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels.astype(np.int64), test_size=args.test_share, stratify=labels, random_state=0
    )
    args.output.mkdir(parents=True, exist_ok=True)
    for name, x, y in (("train", train_x, train_y), ("test", test_x, test_y)):
        np.savez(args.output / f"{name}.npz", x=x, y=y)
        print(f"{name}: {len(x)} images, {np.bincount(y, minlength=10).tolist()} of each digit", flush=True)
    report(train_images=len(train_x), test_images=len(test_x))


if __name__ == "__main__":
    main()
