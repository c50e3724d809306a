/** Shadows of packs whose slices are all that they have of experts, or are damaged. */
import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { Quality } from '../../shared/settings/quality.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { startShadow } from '../../shadow-node/main.js';
import { refusal } from '../unit/tiny-pack.js';
import { ENVIRONMENT } from '../wall.js';
import { COMMAND_TIMEOUT_MS, odmoe } from './harness/run-odmoe.js';
import { openReferenceOf } from './harness/test-models.js';
import { TestCluster } from './harness/test-cluster.js';
import { TestLog } from './harness/test-log.js';
import { testSettings } from './harness/test-settings.js';
import { assertSameAnswer, collect, requestFor } from './harness/answers.js';

const DEMO = join(packageRoot(), 'models', 'demo');
type Precision = ShadowPrecision | 'auto';

const LOW: Quality = { kind: 'low', split: 'sliced84' };

describe('a shadow of a pack with slices', function () {
  this.timeout(2 * COMMAND_TIMEOUT_MS);
  let root: string;
  let only: string;
  let beside: string;

  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'odmoe-shadow-slices-'));
    only = join(root, 'only');
    beside = join(root, 'beside');
    for (const [output, flags] of [
      [only, ['--slices', '8,4', '--only']],
      [beside, ['--slices', '8,4']],
    ] as const) {
      odmoe('pack', DEMO, output, ...flags);
    }
  });

  after(async () => rm(root, { recursive: true, force: true }));

  const damaged = async (pack: string, name: string, slices: readonly ('upper' | 'lower')[]): Promise<string> => {
    const copy = join(root, name);
    await cp(pack, copy, { recursive: true });
    for (const slice of slices) await truncate(join(copy, `slices-00003.${slice}.bin`), 4096);
    return copy;
  };

  /** The form of the shadow's weights, as the cluster's status says it; the answer is that of one process. */
  const formOf = async (
    pack: string,
    precision: Precision,
    quality: Quality,
  ): Promise<{ form: string; warnings: number }> => {
    const reference = await openReferenceOf(pack, quality);
    const request = requestFor([], { text: 'Name a fox.', raw: false, maxTokens: 8, ignoreEos: true });
    const expected = await collect(reference.generate(request, new AbortController().signal));
    reference.dispose();
    const settings = { main: { quality } };
    const cluster = await TestCluster.start({
      packDirectory: pack,
      workers: 1,
      main: settings,
      worker: () => settings,
    });
    try {
      await cluster.addShadow('shadow', { ...settings, precision });
      await cluster.waitForRoster(1, 1);
      const answer = await cluster.ask(request);
      assertSameAnswer(answer, expected);
      assert.ok((answer.finished.sep?.recall ?? 0) > 0.8, `recall ${answer.finished.sep?.recall}`);
      const { nodes } = await cluster.status();
      const form = nodes.find(({ identity }) => identity.role === 'ROLE_SHADOW')?.weightFormat ?? '';
      return { form, warnings: cluster.log.matching('makes slices of its lossless experts').length };
    } finally {
      await cluster.stop();
    }
  };

  it('takes them where there are no lossless experts', async () => {
    assert.equal((await formOf(only, 'sliced(8,4,low)', LOW)).warnings, 0);
    assert.match((await formOf(only, 'auto', LOW)).form, /^sliced\(8,4\) \(auto/);
  });

  it('takes the upper slices alone where it needs no more, however damaged the lower ones are', async () => {
    const pack = await damaged(only, 'lower', ['lower']);
    assert.equal((await formOf(pack, 'sliced(8,4,low)', LOW)).warnings, 0);
  });

  it('makes slices of the lossless experts where those of the pack are damaged, and says so', async () => {
    const pack = await damaged(beside, 'damaged', ['upper', 'lower']);
    for (const precision of ['sliced(8,4)', 'auto'] as const) {
      assert.equal((await formOf(pack, precision, { kind: 'exact' })).warnings, 1, precision);
    }
  });

  it('names a damaged file of other weights, and blames no slices for it', async () => {
    const pack = await damaged(beside, 'dense', []);
    const dense = join(pack, 'dense.safetensors');
    const bytes = await readFile(dense);
    const headerBytes = 8 + Number(bytes.readBigUInt64LE());
    for (let at = headerBytes; at < bytes.length; at += 4096) bytes[at] = (bytes[at] ?? 0) ^ 1;
    await writeFile(dense, bytes);
    const log = new TestLog();
    const settings = testSettings('shadow', pack, { precision: 'sliced(8,4)' });
    await assert.rejects(startShadow(settings, ENVIRONMENT, log.logger('shadow')), refusal('PACK_CORRUPT', /dense/));
    assert.equal(log.matching('makes slices of its lossless experts').length, 0);
  });

  it('is refused in words where the pack has nothing of which its form can be made', async () => {
    const settings = { main: { quality: LOW } };
    const cluster = await TestCluster.start({ packDirectory: only, workers: 0, main: settings });
    try {
      const start = (precision: Precision): Promise<void> => cluster.addShadow('shadow', { ...settings, precision });
      await assert.rejects(
        start('int8'),
        refusal('PACK_INCOMPLETE', /slices only.*a shadow --precision 'sliced\(8,4\)'/),
      );
      await assert.rejects(start('sliced(6,3)'), refusal('USAGE', /no slices \(6,3\)/));
    } finally {
      await cluster.stop();
    }
  });
});
