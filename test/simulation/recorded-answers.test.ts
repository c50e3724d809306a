import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { recordLayers } from '../../engine/fitting/record-layers.js';
import { RecordedStates } from '../../engine/fitting/recorded-states.js';
import { loadDenseWeights } from '../../engine/loading/load-weights.js';
import { openDevice } from '../../native/index.js';
import { openPack } from '../../packs/format/open-pack.js';
import { RECORDED_FILE } from '../../packs/format/pack-layout.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { packOf } from '../integration/harness/test-models.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const PROMPT = [1, 17, 250, 3, 88, 120, 9];
const READING = { signal: new AbortController().signal, onProgress: () => undefined };
const REQUEST = requestFor(PROMPT, { maxTokens: 24, logprobs: 5 });

describe('a simulated cluster that records its answers', () => {
  let directory: string;
  let expected: CollectedAnswer;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  beforeEach(async () => {
    directory = mkdtempSync(join(tmpdir(), 'odmoe-recorded-'));
    cpSync(await packOf('tiny'), directory, { recursive: true });
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
    rmSync(directory, { recursive: true, force: true });
  });

  const start = async (recordTokens: number): Promise<VirtualCluster> =>
    (cluster = await VirtualCluster.start({ packDirectory: directory, workers: 3, main: { main: { recordTokens } } }));

  /** Hexadecimal states and choices of each layer, by row. */
  async function recordedByFit(ids: readonly number[]): Promise<string[][]> {
    const source = await openPack(directory);
    const { hiddenSize, expertsPerToken } = source.shape;
    const rows = ids.map((): string[] => []);
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    const model = device.createModel(source.shape);
    try {
      await loadDenseWeights(model, source, 'shipped');
      await recordLayers(
        {
          device,
          model,
          source,
          memoryBytes: 64 * 1024 * 1024,
          signal: new AbortController().signal,
          record: async ({ states, choices }) => {
            for (const [row, said] of rows.entries()) {
              const state = states.slice(row * hiddenSize, (row + 1) * hiddenSize);
              const chosen = choices.slice(row * expertsPerToken, (row + 1) * expertsPerToken);
              said.push(`${Buffer.from(state.buffer).toString('hex')} ${chosen.join()}`);
            }
          },
          waveDone: async () => undefined,
          onProgress: () => undefined,
        },
        [ids],
        0,
      );
      return rows;
    } finally {
      model.dispose();
      device.dispose();
    }
  }

  it('answers as the engine does, and records to the bit what odmoe fit records of the same tokens', async () => {
    const started = await start(1000);
    const answer = await started.ask(REQUEST);
    assertSameAnswer(answer, expected);
    await started.stop();
    cluster = null;
    const ids = [...PROMPT, ...answer.tokens.map(({ tokenId }) => tokenId)];
    // The last token is not run.
    const rows = answer.tokens.length - 1;
    const wanted = await recordedByFit(ids.slice(0, -1));
    const pack = await openPack(directory);
    const recorded = await RecordedStates.open(pack);
    try {
      assert.equal(await recorded.rows(), rows);
      assert.equal(new Set((await recorded.heads(rows, READING)).answers).size, 1);
      for (let index = 0; index < rows; index++) {
        const row = await recorded.row(index);
        assert.ok(row !== null);
        const found = Array.from({ length: pack.shape.expertLayers }, (_, layer) => {
          const states = row.states(layer).slice();
          return `${Buffer.from(states.buffer).toString('hex')} ${row.choices(layer).join()}`;
        });
        assert.deepEqual(found, wanted[PROMPT.length + index]);
      }
    } finally {
      await recorded.close();
    }
  });

  it('records several answers at once, to the bound, and none by default', async () => {
    const started = await start(30);
    const answers = await Promise.all([1, 2, 3].map(() => started.ask(REQUEST)));
    for (const answer of answers) assertSameAnswer(answer, expected);
    await started.stop();
    cluster = null;
    const recorded = await RecordedStates.open(await openPack(directory));
    try {
      assert.equal(await recorded.rows(), 30);
      assert.ok(new Set((await recorded.heads(30, READING)).answers).size > 1);
    } finally {
      await recorded.close();
    }
    rmSync(join(directory, RECORDED_FILE));
    assertSameAnswer(await (await start(0)).ask(REQUEST), expected);
    assert.ok(!existsSync(join(directory, RECORDED_FILE)));
  });

  it('records on after a kill, behind whole rows', async () => {
    const started = await start(1000);
    assertSameAnswer(await started.ask(REQUEST), expected);
    started.node('main').kill();
    await started.startAgain('main');
    await started.waitForRoster(3, 0);
    assertSameAnswer(await started.ask(REQUEST), expected);
    await started.stop();
    cluster = null;
    const recorded = await RecordedStates.open(await openPack(directory));
    try {
      const rows = await recorded.rows();
      assert.ok(rows > expected.tokens.length, 'rows of both answers');
      for (let row = 0; row < rows; row++) assert.ok(await recorded.row(row));
    } finally {
      await recorded.close();
    }
  });

  it('serves where the file is of something else, and says so', async () => {
    writeFileSync(join(directory, RECORDED_FILE), 'x'.repeat(5000));
    const started = await start(1000);
    assertSameAnswer(await started.ask(REQUEST), expected);
    assert.match(started.log.matching('nothing is recorded')[0] ?? '', /no file of recorded states.*remove it/);
  });
});
