"""The torch operators from Python against plain float64 numpy.

    torch_ops_test.py /path/to/libpaceline_ops.so

The reference below is written from the rules' definitions (docs/rules) and shares no code with the
library but the random numbers, which are addressed: Philox4x32-10 of (seed, stream, position, use).
"""

import contextlib
import io
import pathlib
import re
import sys
import unittest

import numpy as np
import torch

OPS = torch.ops.paceline
TOKEN, DRAFT, ACCEPT = 0, 1, 2


# --- The reference ---


def philox(counter, key):
    mask = 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & mask, (a >> 32) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter


def uniform(seed, position, purpose, offset=0, node=0, stream=0):
    where = purpose << 24 | offset << 16 | node
    words = philox([0, position, where, stream], [seed & 0xFFFFFFFF, seed >> 32])
    return ((words[0] >> 5) * 2**26 + (words[1] >> 6)) / 2**53


def warp(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    if temperature == 0:
        return np.eye(len(logits))[np.argmax(logits)]
    logits = logits / temperature
    order = np.argsort(-logits, kind="stable")
    if top_k > 0:
        order = order[:top_k]
    if top_p < 1:
        probs = np.exp(logits[order] - logits.max())
        before = np.cumsum(probs) - probs
        order = order[before < top_p * probs.sum()]
    order = order[logits[order] >= logits.max() + np.log(min_p)] if min_p > 0 else order
    probs = np.zeros(len(logits))
    probs[order] = np.exp(logits[order] - logits.max())
    return probs / probs.sum()


def draw(weights, u):
    return int(np.argmax(np.cumsum(weights) > u * weights.sum()))


def standard(tokens, target, draft, seed, position):
    """Accept with min(1, p / q), redraw from norm((p - q)+); a picked token is accepted if drawn."""
    for i, token in enumerate(tokens):
        u = uniform(seed, position + i, TOKEN)
        if draft is None:
            drawn = draw(target[i], u)
            if drawn != token:
                return list(tokens[:i]) + [drawn]
        elif uniform(seed, position + i, ACCEPT, i) * draft[i][token] >= target[i][token]:
            return list(tokens[:i]) + [draw(np.maximum(target[i] - draft[i], 0), u)]
    k = len(tokens)
    return list(tokens) + [draw(target[k], uniform(seed, position + k, TOKEN))]


def block(tokens, target, draft, seed, position):
    """Sun et al. 2024: the longest prefix whose coin is accepted, looked for from the end."""
    k = len(tokens)
    kept = [1.0]
    for i, token in enumerate(tokens):
        kept.append(min(1.0, kept[i] * target[i][token] / draft[i][token]))
    for length in range(k, -1, -1):
        left = target[length]
        stop = kept[length]
        if length < k:
            left = np.maximum(kept[length] * target[length] - draft[length], 0)
            rest = left.sum() + 1 - kept[length]
            stop = left.sum() / rest if rest > 0 else 1.0
        if length > 0 and not uniform(seed, position + length - 1, ACCEPT, length - 1) < stop:
            continue
        return list(tokens[:length]) + [draw(left, uniform(seed, position + length, TOKEN))]


def walk(tokens, parents, target, seed, position):
    """The target draws; a child that holds the token is accepted. target[i + 1] is node i's row."""
    node, path = -1, []
    while True:
        drawn = draw(target[node + 1], uniform(seed, position + len(path), TOKEN))
        children = [i for i, parent in enumerate(parents) if parent == node and tokens[i] == drawn]
        if not children:
            return [tokens[i] for i in path] + [drawn], path
        node = children[0]
        path.append(node)


# --- The tests ---


def tensors(settings):
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in settings.items()}


def padded(rows, width):
    return [list(row) + [-1] * (width - len(row)) for row in rows]


class Batch:
    """Chains with the rows that their tokens were really drawn from."""

    def __init__(self, requests, drafted, vocab_size, seed, **settings):
        rng = np.random.default_rng(seed)
        self.logits = rng.normal(size=(requests, drafted + 1, vocab_size)) * 2
        noisy = self.logits[:, :drafted] + rng.normal(size=(requests, drafted, vocab_size))
        self.draft = np.array([[warp(row, **settings) for row in rows] for rows in noisy])
        self.tokens = np.array([[rng.choice(vocab_size, p=row) for row in rows] for rows in self.draft])
        self.target = np.array([[warp(row, **settings) for row in rows] for rows in self.logits])
        self.seeds = rng.integers(0, 2**62, requests)
        self.positions = rng.integers(0, 10**6, requests)
        self.settings = tensors(settings)
        self.keys = {"seeds": torch.tensor(self.seeds), "positions": torch.tensor(self.positions)}

    def reference(self, rule, lengths=None, sampled=True):
        rows = []
        for b, tokens in enumerate(self.tokens):
            k = len(tokens) if lengths is None else lengths[b]
            draft = self.draft[b] if sampled else None
            rows.append(rule(tokens[:k], self.target[b], draft, int(self.seeds[b]), int(self.positions[b])))
        return torch.tensor(padded(rows, self.tokens.shape[1] + 1))


SETTINGS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1.3, "top_k": 20},
    {"top_p": 0.85},
    {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 0.0},
]


class TorchOpsTest(unittest.TestCase):
    def test_warped_probabilities(self):
        logits = np.random.default_rng(1).normal(size=(64, 1000)) * 3
        for settings in SETTINGS:
            expected = np.array([warp(row, **settings) for row in logits])
            for dtype, bound in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
                probs = OPS.warp_probs(torch.tensor(logits, dtype=dtype), **tensors(settings))
                self.assertEqual(probs.dtype, dtype)
                # A token at the edge of a filter may fall on either side once logits are rounded.
                rows = np.abs(probs.numpy() - expected).max(axis=1)
                allowed = 0 if dtype == torch.float64 else 2
                self.assertLessEqual((rows > bound).sum(), allowed, (settings, dtype))

    def test_chains(self):
        for settings in SETTINGS:
            batch = Batch(300, 4, 60, seed=2, **settings)
            for rule in (standard, block):
                tokens, num_accepted = OPS.verify_chain(
                    torch.tensor(batch.tokens), torch.tensor(batch.logits), torch.tensor(batch.draft),
                    rule=rule.__name__, **batch.keys, **batch.settings)
                expected = batch.reference(rule)
                self.assertTrue(torch.equal(tokens, expected), (settings, rule.__name__))
                self.assertTrue(torch.equal(num_accepted, (expected >= 0).sum(1) - 1))
            picked, _ = OPS.verify_chain(torch.tensor(batch.tokens), torch.tensor(batch.logits),
                                         **batch.keys, **batch.settings)
            self.assertTrue(torch.equal(picked, batch.reference(standard, sampled=False)), settings)

    def test_block_by_its_name_and_probabilities_as_they_are(self):
        batch = Batch(200, 5, 40, seed=3, temperature=0.8)
        tokens, _ = OPS.verify_block(torch.tensor(batch.tokens), torch.tensor(batch.target),
                                     torch.tensor(batch.draft), logits=False, **batch.keys)
        self.assertTrue(torch.equal(tokens, batch.reference(block)))

    def test_ragged_rows(self):
        batch = Batch(100, 6, 30, seed=4)
        lengths = np.random.default_rng(5).integers(0, 7, 100)
        tokens = np.concatenate([row[:k] for row, k in zip(batch.tokens, lengths)])
        draft = np.concatenate([row[:k] for row, k in zip(batch.draft, lengths)])
        target = np.concatenate([row[:k + 1] for row, k in zip(batch.logits, lengths)])
        result, _ = OPS.verify_chain(
            torch.tensor(tokens, dtype=torch.int32), torch.tensor(target), torch.tensor(draft),
            cu_num_draft=torch.tensor(np.cumsum(lengths), dtype=torch.int32), max_draft=6, **batch.keys)
        self.assertEqual(result.dtype, torch.int32)
        self.assertTrue(torch.equal(result.long(), batch.reference(standard, lengths)))
        padded_tokens = torch.tensor(padded([r[:k] for r, k in zip(batch.tokens, lengths)], 6))
        same, _ = OPS.verify_chain(padded_tokens, torch.tensor(batch.logits), torch.tensor(batch.draft),
                                   **batch.keys)
        self.assertTrue(torch.equal(result.long(), same))

    def test_sparse_draft_rows(self):
        batch = Batch(100, 4, 200, seed=6, top_k=8)
        probs, ids = torch.tensor(batch.draft).topk(12)
        ids[probs == 0] = -1
        tokens, _ = OPS.verify_chain(torch.tensor(batch.tokens), torch.tensor(batch.logits), probs,
                                     draft_ids=ids, **batch.keys, **batch.settings)
        self.assertTrue(torch.equal(tokens, batch.reference(standard)))

    def test_trees(self):
        rng = np.random.default_rng(7)
        requests, vocab_size = 200, 12
        parents = np.array([-1, -1, -1, 0, 0, 1, 3, 3])
        first_child = torch.tensor([1, 4, 6, -1, 7, -1, -1, -1, -1]).repeat(requests, 1)
        next_sibling = torch.tensor([-1, 2, 3, -1, 5, -1, -1, 8, -1]).repeat(requests, 1)
        tokens = np.array([[0, 1, 2, 3, 4, 5, 6, 7]] * requests)
        logits = rng.normal(size=(requests, 9, vocab_size))
        seeds = rng.integers(0, 2**62, requests)
        expected_tokens, expected_path = [], []
        for b in range(requests):
            target = [warp(row) for row in logits[b]]
            emitted, path = walk(tokens[b], parents, target, int(seeds[b]), 50)
            expected_tokens.append(emitted)
            expected_path.append(path)
        keys = {"seeds": torch.tensor(seeds), "positions": torch.tensor(50)}
        emitted, num_accepted, path = OPS.verify_tree(
            torch.tensor(tokens), torch.tensor(logits),
            parents=torch.tensor(parents).repeat(requests, 1), **keys)
        self.assertTrue(torch.equal(emitted, torch.tensor(padded(expected_tokens, 9))))
        self.assertTrue(torch.equal(path, torch.tensor(padded(expected_path, 8))))
        self.assertGreater(int(num_accepted.max()), 1)
        root = torch.zeros(requests, 1, dtype=torch.long)
        linked, _, linked_path = OPS.verify_tree(
            torch.cat([root, torch.tensor(tokens)], 1), torch.tensor(logits),
            first_child=first_child, next_sibling=next_sibling, **keys)
        self.assertTrue(torch.equal(linked, emitted))
        self.assertTrue(torch.equal(linked_path, torch.where(path >= 0, path + 1, path)))

    def test_samples(self):
        rng = np.random.default_rng(8)
        logits = rng.normal(size=(500, 80))
        seeds, positions = rng.integers(0, 2**62, 500), rng.integers(0, 10**6, 500)
        streams = rng.integers(0, 9, 500)
        keys = {"seeds": torch.tensor(seeds), "positions": torch.tensor(positions),
                "streams": torch.tensor(streams)}
        tokens = OPS.sample(torch.tensor(logits), temperature=torch.tensor(0.7), **keys)
        drafted = OPS.sample(torch.tensor(logits), draft_index=torch.tensor(3), **keys)
        for b in range(500):
            seed, position, stream = int(seeds[b]), int(positions[b]), int(streams[b])
            u = uniform(seed, position, TOKEN, stream=stream)
            self.assertEqual(int(tokens[b]), draw(warp(logits[b], temperature=0.7), u))
            u = uniform(seed, position + 3, DRAFT, 3, stream=stream)
            self.assertEqual(int(drafted[b]), draw(warp(logits[b]), u))

    def test_settings_of_each_request(self):
        batch = Batch(50, 3, 40, seed=9)
        temperatures = torch.arange(50, dtype=torch.float64) / 25
        together, _ = OPS.verify_chain(torch.tensor(batch.tokens), torch.tensor(batch.logits),
                                       temperature=temperatures, **batch.keys)
        for b in range(50):
            alone, _ = OPS.verify_chain(
                torch.tensor(batch.tokens[b:b + 1]), torch.tensor(batch.logits[b:b + 1]),
                temperature=temperatures[b], seeds=batch.keys["seeds"][b], positions=batch.keys["positions"][b])
            self.assertTrue(torch.equal(alone[0], together[b]))

    # 20,000 rounds: float32 decides as float64 but where a coin lands within its rounding.
    def test_float32_decides_as_float64(self):
        rng = np.random.default_rng(10)
        differing, requests = 0, 4000
        for _ in range(5):
            logits = torch.tensor(rng.normal(size=(requests, 5, 50)) * 2)
            draft = (logits[:, :4] + torch.tensor(rng.normal(size=(requests, 4, 50)))).softmax(-1)
            tokens = draft.reshape(-1, 50).multinomial(1).reshape(requests, 4)
            keys = {"seeds": torch.tensor(rng.integers(0, 2**62, requests)), "positions": torch.tensor(0)}
            wide, _ = OPS.verify_chain(tokens, logits, draft, **keys)
            narrow, _ = OPS.verify_chain(tokens, logits.float(), draft.float(), **keys)
            differing += int((wide != narrow).any(1).sum())
        self.assertLessEqual(differing, 2)

    def test_shapes_without_data(self):
        batch = Batch(4, 3, 20, seed=11)
        chain = (torch.tensor(batch.tokens), torch.tensor(batch.logits), torch.tensor(batch.draft))
        utilities = ("test_schema", "test_faketensor")
        for op in (OPS.verify_chain.default, OPS.verify_block.default):
            torch.library.opcheck(op, chain, batch.keys, test_utils=utilities)
        parents = torch.tensor([[-1, -1, 0]] * 4)
        torch.library.opcheck(OPS.verify_tree.default, chain[:2], {**batch.keys, "parents": parents},
                              test_utils=utilities)
        torch.library.opcheck(OPS.warp_probs.default, chain[1:2], {}, test_utils=utilities)
        torch.library.opcheck(OPS.sample.default, (chain[1][:, 0],), batch.keys, test_utils=utilities)

    def test_the_page_shows_what_happens(self):
        page = pathlib.Path(__file__).parents[2] / "docs" / "tensor-api.md"
        example, printed = re.search(r"```python\n(.*?)```\n```\n(.*?)```", page.read_text(), re.S).groups()
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(re.sub(r"torch.ops.load_library\(.*\)\n", "", example), {})
        self.assertEqual(output.getvalue(), printed)

    def test_errors_are_python_errors(self):
        batch = Batch(2, 3, 20, seed=12)
        tokens, logits = torch.tensor(batch.tokens), torch.tensor(batch.logits)
        with self.assertRaisesRegex(ValueError, "verify: expected one of standard"):
            OPS.verify_chain(tokens, logits, rule="best", **batch.keys)
        with self.assertRaisesRegex(ValueError, r"request 1: draft_tokens\[2\]: expected an id"):
            OPS.verify_chain(torch.tensor([[1, 2, 3], [1, 2, 20]]), logits, **batch.keys)
        with self.assertRaisesRegex(NotImplementedError, "paceline::warp_probs"):
            OPS.warp_probs(logits.to_sparse())
        bad = logits.clone()
        bad[1, 0, 7] = float("nan")
        with self.assertRaisesRegex(ValueError, r"request 1: target\[0\]"):
            OPS.verify_chain(tokens, bad, **batch.keys)
        masked = torch.full((1, 20), -torch.inf)
        with self.assertRaisesRegex(RuntimeError, "no_token_left"):
            OPS.sample(masked, seeds=torch.tensor(1), positions=torch.tensor(0))


if __name__ == "__main__":
    torch.ops.load_library(sys.argv.pop(1))
    unittest.main(verbosity=2)
