"""A language model of Hugging Face's transformers, from a folder on this machine: nothing is downloaded.

Needs `pip install 'lockstep[transformers]'`.
"""

from pathlib import Path

import torch
from torch.utils.data import TensorDataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import lockstep


def language_model(folder, file, length=32, held_out=0.1):
    """Continue the text in a file with the model in a folder; its last part is held out.

    `config.json` says which model it is. With weights in the folder these are trained on, otherwise new ones
    are drawn. With a tokenizer there the text is cut by that, otherwise each byte is a token.
    """
    files = [each.name for each in Path(folder).iterdir()]
    config = AutoConfig.from_pretrained(folder, local_files_only=True)

    def model():
        if any(name.endswith(".safetensors") for name in files):
            return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        return AutoModelForCausalLM.from_config(config)

    text = Path(file).read_text(encoding="utf-8")
    if any(name.startswith("tokenizer") for name in files):
        numbers = torch.tensor(AutoTokenizer.from_pretrained(folder, local_files_only=True)(text).input_ids)
    else:
        numbers = torch.tensor(list(text.encode()))
    samples = numbers[: len(numbers) // length * length].view(-1, length)
    cut = len(samples) - max(1, int(len(samples) * held_out))

    def loss(model, batch):
        (tokens,) = batch
        return model(input_ids=tokens, labels=tokens).loss

    def accuracy(output, batch):
        return output.logits[:, :-1].argmax(-1) == batch[0][:, 1:]

    return lockstep.Task(
        model=model,
        train=TensorDataset(samples[:cut]),
        test=TensorDataset(samples[cut:]),
        loss=loss,
        metrics={"accuracy": accuracy},
    )
