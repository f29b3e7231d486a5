#!/usr/bin/env python3
"""Writes tests/data/fixtures: small sets in the published forms, made by numpy, scipy and Pillow, and what
Pillow makes of two of their images. They judge Headroom's readers, which share no code with them.

    pip install numpy scipy pillow && tests/data/make_fixtures.py

Made with numpy 2.4.6, scipy 1.17.1 and Pillow 13.0.0. The types in the .mat files are those that scipy
reads from the published ones.
"""
import json
import pathlib
import struct
import zlib

import numpy
import scipy.io
from PIL import Image

FOLDER = pathlib.Path(__file__).parent / "fixtures"
MEAN = numpy.array([0.485, 0.456, 0.406], numpy.float32)
DEVIATION = numpy.array([0.229, 0.224, 0.225], numpy.float32)


def photograph(random, width, height):
    """Soft shapes, with some sharp edges."""
    y, x = numpy.mgrid[0:height, 0:width] / 20.0
    planes = [127 + 100 * numpy.sin(x * random.uniform(0.5, 2) + y * random.uniform(0.5, 2)) for _ in range(3)]
    pixels = numpy.stack(planes, -1)
    pixels[height // 3 : height // 2, width // 4 : width // 2] = random.integers(0, 255, 3)
    return Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))


def save(image, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=90, **options)


def seen(path, side, resized):
    """torchvision's Resize(resized), CenterCrop(side), ToTensor and Normalize."""
    image = Image.open(path).convert("RGB")
    width, height = image.size
    shorter = min(width, height)
    image = image.resize((resized * width // shorter, resized * height // shorter), Image.BILINEAR)
    left, top = round((image.width - side) / 2.0), round((image.height - side) / 2.0)
    pixels = numpy.asarray(image.crop((left, top, left + side, top + side)), numpy.float32) / 255
    return ((pixels - MEAN) / DEVIATION).transpose(2, 0, 1)


def flowers(random):
    folder = FOLDER / "flowers102"
    for number in range(1, 7):
        save(photograph(random, 80 + 3 * number, 60), folder / f"jpg/image_{number:05d}.jpg")
    labels = numpy.array([[102, 1, 77, 1, 77, 102]], numpy.uint8)
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": labels}, do_compression=True)
    parts = {"trnid": [[5, 2, 1]], "valid": [[6, 4]], "tstid": [[3]]}
    parts = {name: numpy.array(ids, numpy.uint16) for name, ids in parts.items()}
    scipy.io.savemat(folder / "setid.mat", parts, do_compression=True)
    seen(folder / "jpg/image_00003.jpg", 32, 40).astype("<f4").tofile(folder / "image_00003.seen")


def birds(random):
    folder = FOLDER / "birds/CUB_200_2011"
    names = ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    images = [(names[0], "Black_Footed_Albatross_0046_18", 0), (names[0], "Black_Footed_Albatross_0009_34", 1),
              (names[1], "Laysan_Albatross_0002_1027", 1), (names[1], "Laysan_Albatross_0003_1033", 0)]
    # One is grey and one stores inks, as some photographs do.
    for (name, stem, _), mode in zip(images, ["RGB", "L", "CMYK", "RGB"]):
        save(photograph(random, 50, 70).convert(mode), folder / f"images/{name}/{stem}.jpg")
    lines = {"classes.txt": names, "images.txt": [f"{name}/{stem}.jpg" for name, stem, _ in images],
             "image_class_labels.txt": [names.index(name) + 1 for name, _, _ in images],
             "train_test_split.txt": [trains for _, _, trains in images]}
    for file, texts in lines.items():
        (folder / file).write_text("".join(f"{i} {text}\n" for i, text in enumerate(texts, 1)))


def large(random):
    """Which is decoded at a quarter of its size."""
    path = FOLDER / "large.jpg"
    save(photograph(random, 480, 360), path)
    seen(path, 32, 40).astype("<f4").tofile(FOLDER / "large.seen")


def pixel(x, y):
    return 50 * x, 60 * y, 200 - 10 * x - 20 * y


def png(path, depth, colour_type, pixel_bytes, more=b""):
    """5 x 5 pixels, written without a library: what is in them is known exactly."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows = b"".join(b"\0" + b"".join(pixel_bytes(x, y) for x in range(5)) for y in range(5))
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">IIBBBBB", 5, 5, depth, colour_type, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + chunk(b"IDAT", zlib.compress(rows)) +
                     chunk(b"IEND", b""))


def pngs():
    folder = FOLDER / "png"
    palette = b"".join(bytes(pixel(i % 5, i // 5)) for i in range(25))
    png(folder / "colour.png", 8, 2, lambda x, y: bytes(pixel(x, y)))
    png(folder / "transparent.png", 8, 6, lambda x, y: bytes((*pixel(x, y), 40 * x)))
    png(folder / "deep.png", 16, 2, lambda x, y: struct.pack(">3H", *(257 * one for one in pixel(x, y))))
    png(folder / "palette.png", 8, 3, lambda x, y: bytes([5 * y + x]),
        struct.pack(">I", len(palette)) + b"PLTE" + palette + struct.pack(">I", zlib.crc32(b"PLTE" + palette)))
    png(folder / "grey.png", 8, 0, lambda x, y: bytes([50 * x]))


def tokens():
    folder = FOLDER / "tokens"
    folder.mkdir(parents=True, exist_ok=True)
    texts = numpy.array([7, 8, 9, 0, 300, 301, 0, 65535, 1, 2, 0], "<u2")
    texts.tofile(folder / "narrow.bin")
    numpy.array([7, 8, 9, 0, 300, 100000, 0], "<u4").tofile(folder / "train.bin")
    form = {"schema": 1, "dtype": "uint32", "tokens": 7, "vocab_size": 100001, "document_end": 0}
    (folder / "train.bin.json").write_text(json.dumps(form))
    numpy.array([0, 0, 1, 1, 1, 1, 0], "u1").tofile(folder / "train.mask.bin")


if __name__ == "__main__":
    dice = numpy.random.default_rng(20)
    flowers(dice)
    birds(dice)
    large(dice)
    pngs()
    tokens()
