"""Measure a trained model on images that it has not seen."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from results import report


def predict(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Digit for each image."""
    hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0)
    return (hidden @ weights["w2"] + weights["b2"]).argmax(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    args = parser.parse_args()

    with np.load(args.data) as data, np.load(args.model) as model:
        x, y = data["x"], data["y"]
        predicted = predict(dict(model), x)
    for digit in range(10):
        of_digit = y == digit
        print(f"digit {digit}: {(predicted[of_digit] == digit).sum()} of {of_digit.sum()} right", flush=True)
    report(accuracy=round(float((predicted == y).mean()), 4), images=len(y))


if __name__ == "__main__":
    main()
