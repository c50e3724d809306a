import assert from 'node:assert/strict';
import { readdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { ActivationCounts, parseActivationCounts } from '../../shared/decisions/caching/activation-counts.js';
import { readActivationCounts, writeActivationCounts } from '../../engine/planning/activation-counts-file.js';
import { withTemporaryDirectory } from './tiny-checkpoint.js';

const DIGEST = 'ab'.repeat(32);

function sample(): ActivationCounts {
  const counts = new ActivationCounts(DIGEST, 4);
  counts.add(3, 0, 5);
  counts.add(3, 2, 1);
  counts.add(1, 3, 7);
  return counts;
}

describe('activation counts', () => {
  it('add up, layer by layer', () => {
    const counts = sample();
    counts.merge(sample());
    assert.deepEqual(counts.layers, [1, 3]);
    assert.deepEqual([...counts.of(3)], [10, 0, 2, 0]);
    assert.deepEqual([...counts.of(0)], [0, 0, 0, 0]);
    assert.equal(counts.total, 26);
  });

  it('count nothing outside the model', () => {
    const counts = new ActivationCounts(DIGEST, 4);
    for (const expert of [-1, 4, 1.5, Number.NaN]) counts.add(0, expert, 1);
    counts.add(-1, 0, 1);
    counts.add(1e9, 0, 1);
    assert.equal(counts.total, 0);
  });

  it('come back from JSON unchanged', () => {
    const json: unknown = JSON.parse(JSON.stringify(sample().toJson()));
    assert.deepEqual(parseActivationCounts(json)?.toJson(), sample().toJson());
  });

  it('are refused in any other form', () => {
    const json = sample().toJson() as Record<string, unknown>;
    const wrong = [
      { format_version: 2 },
      { pack_digest: 'x' },
      { experts: 3 },
      { experts: 1e9 },
      { layers: { a: [0, 0, 0, 0] } },
      { layers: { 9999: [0, 0, 0, 0] } },
      { layers: { 0: [0, 0, 0, -1] } },
      { layers: { 0: [0, 0, 0, 0.5] } },
      { more: 1 },
    ];
    for (const change of wrong)
      assert.equal(parseActivationCounts({ ...json, ...change }), null, JSON.stringify(change));
    fc.assert(fc.property(fc.jsonValue(), (value) => assert.equal(parseActivationCounts(value), null)));
  });
});

describe('a file of activation counts', () => {
  const model = { packDigest: DIGEST, experts: 4 };

  it('stores them, in a directory that it creates, and leaves nothing else there', () =>
    withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'state', 'counts.json');
      await writeActivationCounts(path, sample());
      await writeActivationCounts(path, sample());
      const { counts, problem } = await readActivationCounts(path, model);
      assert.equal(problem, null);
      assert.deepEqual(counts?.toJson(), sample().toJson());
      assert.deepEqual(await readdir(join(directory, 'state')), ['counts.json']);
    }));

  it('may be missing; a torn or damaged one, or one of another model, is named', () =>
    withTemporaryDirectory(async (directory) => {
      const path = join(directory, 'counts.json');
      assert.deepEqual(await readActivationCounts(path, model), { counts: null, problem: null });
      await writeActivationCounts(path, sample());
      const other = await readActivationCounts(path, { ...model, packDigest: 'cd'.repeat(32) });
      assert.match(other.problem ?? '', /of another model/);
      await truncate(path, (await readFile(path)).length / 2);
      const torn = await readActivationCounts(path, model);
      assert.equal(torn.counts, null);
      assert.match(torn.problem ?? '', /not valid JSON/);
      await writeFile(path, '{}');
      assert.match((await readActivationCounts(path, model)).problem ?? '', /not a record/);
      assert.match((await readActivationCounts(directory, model)).problem ?? '', /not a regular file/);
    }));

  it('is named in an error where it cannot be written', () =>
    withTemporaryDirectory(async (directory) => {
      await writeFile(join(directory, 'file'), '');
      await assert.rejects(
        writeActivationCounts(join(directory, 'file', 'counts.json'), sample()),
        /cannot be written/,
      );
    }));
});
