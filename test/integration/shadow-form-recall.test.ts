/** Recall of the forms of a shadow: measured when a model is packed, and followed by `shadow.precision: auto`. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { shadowForm } from '../../engine/loading/shadow-form.js';
import { type Model, openDevice } from '../../native/index.js';
import { openAnyPack } from '../../packs/format/open-pack.js';
import { SHADOW_RECALL_FILE } from '../../packs/format/pack-layout.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { readShadowRecall } from '../../packs/shadow-recall-file.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import {
  AUTO_PRECISIONS,
  type AutoPrecision,
  type FormRecall,
} from '../../shared/decisions/slices/choose-shadow-form.js';
import { loadShadowModel } from '../../shadow-node/predictor/shadow-model.js';
import { refusal } from '../unit/tiny-pack.js';
import { runCalibrationText } from './calibration-passes.js';
import { COMMAND_TIMEOUT_MS, odmoe } from './harness/run-odmoe.js';
import { TestCluster } from './harness/test-cluster.js';

const DEMO = join(packageRoot(), 'models', 'demo');
const CPU = { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 } as const;

describe('the recall of the forms of a shadow', function () {
  this.timeout(2 * COMMAND_TIMEOUT_MS);
  let root: string;
  let packed: string;
  let output: string;

  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'odmoe-form-recall-'));
    packed = join(root, 'packed');
    output = odmoe('pack', DEMO, packed, '--recall');
  });

  after(async () => rm(root, { recursive: true, force: true }));

  const measured = async (): Promise<readonly FormRecall[]> =>
    (await readShadowRecall(await openAnyPack(packed))) ?? assert.fail('it was measured');

  it('is what whole passes of shadows with all experts in memory predict', async () => {
    const recalls = await measured();
    assert.deepEqual(
      recalls.map(({ precision }) => precision),
      AUTO_PRECISIONS,
    );
    const exact = await activatedBy(null);
    for (const precision of ['int8', 'nf4', 'sliced(8,4)', 'sliced(6,3,low)'] as const) {
      const predicted = await activatedBy(precision);
      const correct = exact.reduce((sum, pair, index) => sum + overlap(pair, predicted[index] ?? []), 0);
      const found = recalls.find((form) => form.precision === precision)?.recall;
      assert.equal(found, correct / (2 * exact.length), precision);
    }
  });

  it('is printed by odmoe pack and odmoe inspect, and measured once', async () => {
    assert.match(output, /measured the recall of shadows with 512 tokens of text:\n +sliced\(8,4\) +0\.99\d\d\n/);
    const lines = odmoe('inspect', packed);
    assert.match(lines, /shadow +recall of each form, without alignment:\n +sliced\(8,4\) +0\.99\d\d\n/);
    const before = await readFile(join(packed, SHADOW_RECALL_FILE));
    const again = JSON.parse(odmoe('pack', packed, packed, '--recall', '--json')) as { measured: unknown };
    assert.equal(again.measured, null);
    assert.deepEqual(await readFile(join(packed, SHADOW_RECALL_FILE)), before);
  });

  it('is found by the same command again, and needs the checkpoint of a pack of slices only', async () => {
    const before = await readFile(join(packed, SHADOW_RECALL_FILE), 'utf8');
    assert.match(odmoe('pack', DEMO, packed, '--recall'), /already holds the whole pack/);
    assert.equal(await readFile(join(packed, SHADOW_RECALL_FILE), 'utf8'), before);
    const only = join(root, 'only');
    odmoe('pack', DEMO, only, '--slices', '8,4', '--only', '--recall');
    const { recall } = JSON.parse(await readFile(join(only, SHADOW_RECALL_FILE), 'utf8')) as { recall: unknown[] };
    assert.equal(recall.length, 8);
    await rm(join(only, SHADOW_RECALL_FILE));
    const command = [join(packageRoot(), 'bin', 'odmoe'), 'pack', only, only, '--recall'];
    const { status, stderr } = spawnSync(process.execPath, command, { encoding: 'utf8', timeout: COMMAND_TIMEOUT_MS });
    assert.equal(status, 2);
    assert.match(stderr, /holds slices only.*give the checkpoint/);
  });

  it('is refused if it was measured with another model or is damaged, and is then measured again', async () => {
    const path = join(packed, SHADOW_RECALL_FILE);
    const before = await readFile(path, 'utf8');
    const pack = await openAnyPack(packed);
    const other = { ...(JSON.parse(before) as object), source_fingerprint: '0'.repeat(64) };
    await writeFile(path, JSON.stringify(other));
    await assert.rejects(readShadowRecall(pack), refusal('PACK_CORRUPT', /measured with another model/));
    await writeFile(path, before.slice(0, -20));
    await assert.rejects(readShadowRecall(pack), refusal('PACK_CORRUPT', /not valid JSON.*--recall/));
    odmoe('pack', packed, packed, '--recall');
    assert.equal(await readFile(path, 'utf8'), before);
  });

  it('chooses the form of a shadow that is a daemon, which goes on without it where it is damaged', async () => {
    const path = join(packed, SHADOW_RECALL_FILE);
    const before = await readFile(path, 'utf8');
    assert.match(await formatOfShadow(packed), /^sliced\(8,4\) \(auto: predicts best .*: recall 0\.99\d\d\)$/);
    await writeFile(path, '{');
    assert.match(await formatOfShadow(packed), /^sliced\(8,4\) \(auto: the largest form .* recall was not measured\)$/);
    await writeFile(path, before);
  });
});

async function formatOfShadow(packDirectory: string): Promise<string> {
  const cluster = await TestCluster.start({ packDirectory, workers: 1 });
  try {
    await cluster.addShadow('shadow', { precision: 'auto' });
    await cluster.waitForRoster(1, 1);
    const { nodes } = await cluster.status();
    return nodes.find(({ identity }) => identity.role === 'ROLE_SHADOW')?.weightFormat ?? '';
  } finally {
    await cluster.stop();
  }
}

function overlap(one: readonly number[], other: readonly number[]): number {
  return one.filter((expert) => other.includes(expert)).length;
}

/** The two experts of each layer and row of the calibration text; null: of the model as it was shipped. */
async function activatedBy(precision: AutoPrecision | null): Promise<number[][]> {
  const source = await openModelSource(DEMO);
  const device = openDevice(CPU);
  const load = async (): Promise<Model> => {
    if (precision !== null) return loadShadowModel(device, source, shadowForm(precision), 'projections');
    const model = device.createModel(source.shape);
    await loadDenseWeights(model, source, 'shipped');
    await loadResidentExperts(model, source, 'shipped');
    return model;
  };
  const model = await load();
  const pairs: number[][] = [];
  await runCalibrationText(model, DEMO, ({ experts }) => {
    for (let at = 0; at < experts.length; at += 2) pairs.push([...experts.subarray(at, at + 2)]);
  });
  model.dispose();
  device.dispose();
  return pairs;
}
