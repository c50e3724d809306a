import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { openPack } from '../../../packs/format/open-pack.js';
import { ActivationCounts } from '../../../shared/decisions/caching/activation-counts.js';
import { writeActivationCounts } from '../../../engine/planning/activation-counts-file.js';
import { withTemporaryDirectory } from '../../unit/tiny-checkpoint.js';
import { packOf } from '../../integration/harness/test-models.js';

const RUN_TIMEOUT_MS = 60_000;

interface Figures {
  pools: Record<'full' | 'compressed' | 'sign_mantissa' | 'exponent', number>;
  used_bytes: number;
  layer_makespan_ms: number;
}

interface PlanJson {
  layers: number;
  recorded_activations: number;
  is_assumed: boolean;
  profile: Record<string, number>;
  planned: Figures;
  full_only: Figures;
  none: Figures;
}

function plan(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const command = [join(packageRoot(), 'bin', 'odmoe'), 'plan', ...args];
  return spawnSync(process.execPath, command, { encoding: 'utf8', timeout: RUN_TIMEOUT_MS });
}

function planned(...args: string[]): PlanJson {
  const { status, stdout, stderr } = plan(...args, '--json');
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout) as PlanJson;
}

describe('odmoe plan', function () {
  this.timeout(2 * RUN_TIMEOUT_MS);

  it('measures, stays within the budget, and is no worse than whole experts or no cache', async () => {
    const found = planned(await packOf('demo'), '--memory', '2MB', '--top-k-per-worker', '2');
    assert.equal(found.layers, 8);
    assert.equal(found.is_assumed, true);
    assert.ok(found.planned.used_bytes <= 2_000_000);
    assert.ok(found.planned.layer_makespan_ms <= found.full_only.layer_makespan_ms);
    assert.ok(found.full_only.layer_makespan_ms <= found.none.layer_makespan_ms);
    for (const [name, value] of Object.entries(found.profile)) assert.ok(Number.isFinite(value) && value >= 0, name);
    assert.deepEqual(found.none.pools, { full: 0, compressed: 0, sign_mantissa: 0, exponent: 0 });
  });

  it('plans for the records, and uses the allowed pools', async () => {
    const directory = await packOf('demo');
    await withTemporaryDirectory(async (temporary) => {
      const { packDigest, shape } = await openPack(directory);
      const counts = new ActivationCounts(packDigest, shape.experts);
      for (const layer of [1, 3])
        for (let expert = 0; expert < shape.experts; expert += 1) counts.add(layer, expert, 100);
      const file = join(temporary, 'counts.json');
      await writeActivationCounts(file, counts);
      const found = planned(directory, '--memory', '1MB', '--counts', file, '--pools', 's,e');
      assert.equal(found.layers, 2);
      assert.equal(found.is_assumed, false);
      assert.equal(found.recorded_activations, 200 * shape.experts);
      assert.equal(found.planned.pools.full + found.planned.pools.compressed, 0);
      const lines = plan(directory, '--memory', '1MB', '--counts', file).stdout;
      assert.match(lines, /1,600 activations recorded/);
      assert.match(lines, /whole experts only +[\d.]+ ms/);
      await writeFile(file, '{');
      const torn = plan(directory, '--memory', '1MB', '--counts', file);
      assert.equal(torn.status, 2);
      assert.match(torn.stderr, /--counts: .*not valid JSON/);
    });
  });

  it('explains wrong usage', async () => {
    const directory = await packOf('demo');
    for (const [args, message] of [
      [[directory], /--memory/],
      [[directory, '--memory', 'much'], /must be a size/],
      [[directory, '--memory', '1GB', '--pools', 'X'], /F, C, S and E/],
      [[directory, '--memory', '1GB', '--top-k-per-worker', '9'], /has 8 experts/],
      [[directory, '--memory', '1GB', '--layers', '99'], /has 8 layers/],
      [[directory, '--memory', '1GB', '--counts', '/nowhere'], /no such file/],
    ] as const) {
      const { status, stderr } = plan(...args);
      assert.equal(status, 2, stderr);
      assert.match(stderr, message);
    }
    assert.equal(plan('/nowhere', '--memory', '1GB').status, 3);
  });
});
