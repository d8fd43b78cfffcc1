"""The fenced code blocks of a Markdown document."""

import dataclasses
import re

FENCE = re.compile(r"^ {0,3}```\s*([^`]*?)\s*$")
MAIN = re.compile(r"^int main\(", re.MULTILINE)


@dataclasses.dataclass
class Block:
    language: str
    line: int  # of the first line inside, counted from 1
    text: str

    def is_program(self):
        return bool(MAIN.search(self.text))


def read(path):
    blocks, inside = [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if not fence:
            if inside:
                inside.text += line + "\n"
        elif inside:
            blocks.append(inside)
            inside = None
        else:
            inside = Block(fence[1], number + 1, "")
    if inside:
        raise ValueError(f"{path}:{inside.line - 1}: the block is never closed")
    return blocks
