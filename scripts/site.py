"""What the site has besides docs/*.md (mkdocs calls this): README.md as its first page and the reference of the Python
package. The site holds documents only: links out of docs lead into the repository where its address is known (repo_url,
from the variable ISOCHRON_ADDRESS), and otherwise become names of files."""

import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)#\s]+)((?:#[^)\s]*)?)\)")

REFERENCE = """# Python reference

Written from the package's docstrings. What each option of a job means is in the tables of [PyTorch](pytorch.md) and
[TensorFlow](tensorflow.md).

::: isochron.torch.job.Job
    options: {inherited_members: true}
::: isochron.keywords.JobKeywords
::: isochron.keywords.TorchJobKeywords
::: isochron.torch.options.TorchKeywords
::: isochron.torch.source.LoaderKeywords
::: isochron.torch.loader.Loader
::: isochron.summary.Summary
::: isochron.torch.shards.Shards
::: isochron.torch.dropout.Dropout
::: isochron.torch.watching.watch
::: isochron.torch.profiling.profile
::: isochron.torch.lightning.IsochronCallback
::: isochron.torch.transformers.IsochronTrainer
::: isochron.tensorflow.job.Job
    options: {inherited_members: true}
::: isochron.keywords.TensorFlowJobKeywords
::: isochron.tensorflow.options.TensorFlowKeywords
::: isochron.run
::: isochron.plot
::: isochron.errors
"""


def on_files(files, config):
    readme = (ROOT / "README.md").read_text()
    files.append(File.generated(config, "index.md", content=LINK.sub(_into_docs, readme)))
    files.append(File.generated(config, "api.md", content=REFERENCE))
    return files


def on_page_markdown(markdown, page, config, files):
    return LINK.sub(lambda match: _outside(match, config.repo_url), markdown)


def _into_docs(match):
    picture, text, target, anchor = match.groups()
    inside = target.removeprefix("docs/")
    return f"{picture}[{text}]({inside if inside != target else '../' + target}{anchor})"


def _outside(match, address):
    picture, text, target, anchor = match.groups()
    if not target.startswith("../"):
        return match[0]
    name = target.removeprefix("../").rstrip("/")
    if address:
        kind = "raw" if picture else "tree" if (ROOT / name).is_dir() else "blob"
        return f"{picture}[{text}]({address.rstrip('/')}/{kind}/HEAD/{name}{anchor})"
    return f"`{name}`" if text in (name, pathlib.PurePath(name).name) else f"{text} (`{name}`)"
