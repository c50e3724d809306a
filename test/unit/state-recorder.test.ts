import assert from 'node:assert/strict';
import { open, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { awaitRecorded } from '../../engine/fitting/await-recorded.js';
import { copyRecorded } from '../../engine/fitting/copy-recorded.js';
import { fitPredictor } from '../../engine/fitting/fit-predictor.js';
import type { RecordedRows } from '../../engine/fitting/record-layers.js';
import { RecordedStates } from '../../engine/fitting/recorded-states.js';
import { RECORDED_HEADER_BYTES, RecordedRow, recordedRowBytes } from '../../engine/recording/recorded-row.js';
import { openRecorder, type StateRecorder } from '../../engine/recording/state-recorder.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { RECORDED_FILE } from '../../packs/format/pack-layout.js';
import { readPredictor } from '../../packs/predictor/predictor-file.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { RUNTIME } from '../wall.js';
import { pack, refusal, withCheckpoint } from './tiny-pack.js';

const NEVER = new AbortController().signal;
const SLEEPLESS = { sleep: async () => undefined };

interface Opened {
  recorder: StateRecorder | null;
  said: string[];
}

async function opened(tiny: Pack, tokens: number, outside = RUNTIME.outside.bind(RUNTIME)): Promise<Opened> {
  const said: string[] = [];
  const say = (event: string, fields: Record<string, unknown> = {}): void => {
    const { error } = fields;
    said.push(`${event} ${error instanceof Error ? error.message : JSON.stringify(fields)}`);
  };
  const log: Logger = { error: say, warn: say, info: say, debug: say };
  return { recorder: await openRecorder({ pack: tiny, tokens }, { outside }, log), said };
}

async function recorderOf(tiny: Pack, tokens: number): Promise<StateRecorder> {
  const { recorder, said } = await opened(tiny, tokens);
  assert.ok(recorder !== null, said.join('\n'));
  return recorder;
}

/** A row of drawn values. */
function drawnRow({ shape }: Pack, answer: number, seed: number): RecordedRow {
  const random = new SeededRandom(seed);
  const row = new RecordedRow(shape);
  for (let layer = 0; layer < shape.expertLayers; layer++) {
    row.states(layer).forEach((_, index, states) => (states[index] = random.int(1000) / 500 - 1));
    row
      .choices(layer)
      .forEach((_, index, choices) => (choices[index] = (random.int(shape.experts) + index) % shape.experts));
  }
  row.seal(answer);
  return row;
}

async function withPack(use: (tiny: Pack, path: string) => Promise<void>): Promise<void> {
  await withCheckpoint(async (checkpoint, output) => {
    await pack(checkpoint, output);
    await use(await openPack(output), join(output, RECORDED_FILE));
  });
}

async function reading<Result>(tiny: Pack, use: (states: RecordedStates) => Promise<Result>): Promise<Result> {
  const states = await RecordedStates.open(tiny);
  try {
    return await use(states);
  } finally {
    await states.close();
  }
}

const sizeOf = (tiny: Pack, rows: number): number => RECORDED_HEADER_BYTES + rows * recordedRowBytes(tiny.shape);

describe('the recording of states', function () {
  this.timeout(60_000);

  it('keeps rows in their order, to the bound, for its user alone, and a later main goes on', async () => {
    await withPack(async (tiny, path) => {
      const rows = [0, 1, 2, 3, 4].map((index) => drawnRow(tiny, 2 ** 40 + (index % 2), index));
      const first = await recorderOf(tiny, 4);
      rows.slice(0, 2).forEach((row) => first.add(row));
      await Promise.all([first.close(), first.close()]);
      assert.equal((await stat(path)).mode & 0o077, 0);
      const second = await recorderOf(tiny, 4);
      rows.slice(2).forEach((row) => second.add(row));
      assert.ok(!second.isOpen, 'all that are wanted were taken');
      await second.close();
      assert.equal((await stat(path)).size, sizeOf(tiny, 4));
      await reading(tiny, async (states) => {
        assert.deepEqual([states.limit, await states.rows(), await states.isWritten()], [4, 4, false]);
        assert.deepEqual(
          (await states.heads(4)).answers,
          [0, 1, 0, 1].map((answer) => 2 ** 40 + answer),
        );
        for (const index of [3, 0]) assert.deepEqual((await states.row(index)).bytes, rows[index]?.bytes);
      });
      const { recorder, said } = await opened(tiny, 4);
      assert.equal(recorder, null);
      assert.match(said.join(), /"recorded":4/);
      const larger = await recorderOf(tiny, 9);
      await larger.close();
      assert.equal(await reading(tiny, async ({ limit }) => limit), 9);
    });
  });

  it('goes on after a kill within a row, and after a loss of power that has damaged the last rows', async () => {
    await withPack(async (tiny, path) => {
      const rows = [0, 1, 2, 3].map((index) => drawnRow(tiny, 7, index));
      const killed = await recorderOf(tiny, 100);
      rows.forEach((row) => killed.add(row));
      await killed.close();
      await truncate(path, sizeOf(tiny, 3) + 5);
      assert.equal(await reading(tiny, (states) => states.rows()), 3);
      const file = await open(path, 'r+');
      await file.write(Buffer.from([1, 2, 3]), 0, 3, sizeOf(tiny, 2) + 20);
      await file.close();
      await reading(tiny, async (states) => {
        await assert.rejects(states.row(2), refusal('PACK_CORRUPT', /row 2 is damaged; remove it/));
      });
      const next = await recorderOf(tiny, 100);
      next.add(rows[3] as RecordedRow);
      await next.close();
      await reading(tiny, async (states) => {
        assert.equal(await states.rows(), 3);
        assert.deepEqual((await states.row(1)).bytes, rows[1]?.bytes);
        assert.deepEqual((await states.row(2)).bytes, rows[3]?.bytes);
      });
      await truncate(path, 100);
      await (await recorderOf(tiny, 100)).close();
      assert.equal(await reading(tiny, (states) => states.rows()), 0, 'a header in part is written anew');
    });
  });

  it('refuses in words a file that is damaged, of another model or version, or that another main has open', async () => {
    await withPack(async (tiny, path) => {
      const open = await recorderOf(tiny, 100);
      assert.ok(await reading(tiny, (states) => states.isWritten()));
      assert.match((await opened(tiny, 100)).said.join(), /nothing is recorded.*another process records into it/);
      await open.close();
      const header = await readFile(path, 'utf8');
      for (const [text, words] of [
        [header.replace('{', '['), /a damaged one; remove it/],
        [
          header.replace('"version":1', '"version":2'),
          /version 2 of recorded states, this odmoe reads version 1; remove it/,
        ],
        [header.replace(/"hidden_size":\d/, '"hidden_size":9'), /of another model; remove it/],
        [header.replace('"tokens":100', '"tokens":1.5'), /is damaged; remove it/],
      ] as const) {
        await writeFile(path, text);
        const { recorder, said } = await opened(tiny, 100);
        assert.equal(recorder, null);
        assert.match(said.join(), words);
        await assert.rejects(RecordedStates.open(tiny), words);
      }
      await rm(path);
      await assert.rejects(
        RecordedStates.open(tiny),
        refusal('USAGE', /no main has recorded anything: set main\.record_tokens/),
      );
    });
  });

  it('ends with a warning when the disk is full, and keeps the rows before', async () => {
    await withPack(async (tiny, path) => {
      let calls = 0;
      const outside = <Result>(work: () => Promise<Result>): Promise<Result> => {
        calls += 1;
        if (calls !== 3) return work();
        return Promise.reject(Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC' }));
      };
      const { recorder, said } = await opened(tiny, 100, outside);
      assert.ok(recorder !== null);
      for (const seed of [0, 1, 2]) recorder.add(drawnRow(tiny, 1, seed));
      await recorder.close();
      assert.ok(!recorder.isOpen);
      assert.match(said.join(), /main records no more: the file cannot be written; answers go on .*full/);
      assert.equal((await stat(path)).size, sizeOf(tiny, 1));
    });
  });
});

describe('fitting with recorded states', function () {
  this.timeout(60_000);

  it('waits until the tokens are there, and says what to do where they do not come', async () => {
    const file = { path: 'p', limit: 9000, left: [10, 5000, 6000] };
    const recorded = { ...file, isWritten: async () => true, rows: async () => file.left.shift() ?? 6000 };
    const seen: number[] = [];
    const onProgress = (_: string, done: number): void => void seen.push(done);
    await awaitRecorded(recorded, { tokens: 6000, signal: NEVER, onProgress }, SLEEPLESS);
    assert.deepEqual(seen, [10, 5000, 6000]);
    const wait = { tokens: 7000, signal: NEVER, onProgress };
    await assert.rejects(
      awaitRecorded({ ...recorded, isWritten: async () => false }, wait, SLEEPLESS),
      refusal('USAGE', /6000 of 7000 tokens.*no main that runs here.*start main.*or give --tokens 6000/),
    );
    await assert.rejects(
      awaitRecorded({ ...recorded, limit: 6500 }, wait, SLEEPLESS),
      refusal('USAGE', /main records 6500 at most.*start main with main\.record_tokens 7000/),
    );
    await assert.rejects(
      awaitRecorded(recorded, { ...wait, signal: AbortSignal.abort() }, SLEEPLESS),
      refusal('CANCELLED', /6000 of 7000 tokens recorded; main goes on/),
    );
  });

  it('copies rows by layer, from where it was interrupted', async () => {
    await withPack(async ({ shape, ...tiny }) => {
      const rows = [0, 1, 2].map((index) => drawnRow({ shape, ...tiny }, 7, index));
      const written: RecordedRows[] = [];
      const done: number[] = [];
      await copyRecorded({ row: async (index) => rows[index] as RecordedRow }, [2, 0, 1], shape, {
        firstRow: 1,
        signal: NEVER,
        record: async (some) => void written.push(some),
        done: async (count) => void done.push(count),
      });
      assert.deepEqual(done, [3]);
      assert.deepEqual(
        written.map(({ layer, firstRow }) => [layer, firstRow]),
        Array.from({ length: shape.expertLayers }, (_, layer) => [layer, 1]),
      );
      for (const { layer, states, choices } of written) {
        assert.deepEqual(states, Float32Array.from([0, 1].flatMap((row) => [...(rows[row]?.states(layer) ?? [])])));
        assert.deepEqual(choices, Int32Array.from([0, 1].flatMap((row) => [...(rows[row]?.choices(layer) ?? [])])));
      }
    });
  });

  it('makes the same predictor of the same rows, also after an interruption, while main records on', async () => {
    await withPack(async (tiny) => {
      const TOKENS = 4100;
      const recorder = await recorderOf(tiny, 10_000);
      for (let row = 0; row < TOKENS; row++) recorder.add(drawnRow(tiny, Math.floor(row / 700), row));
      const request = { text: null, memoryBytes: 64 * 1024 * 1024, seed: 1, units: 4, runtime: RUNTIME };
      await reading(tiny, async (recorded) => {
        await awaitRecorded(recorded, { tokens: TOKENS, signal: NEVER, onProgress: () => undefined }, RUNTIME);
        const stages = new Set<string>();
        const wanted = {
          ...request,
          recorded,
          tokens: TOKENS,
          signal: NEVER,
          onProgress: (stage: string) => void stages.add(stage),
        };
        const predictor = await fitPredictor(tiny, wanted);
        assert.deepEqual([...stages], ['copying', 'training']);
        assert.match(predictor.text, /^recorded answers [0-9a-f]{64}$/);
        assert.equal(predictor.tokens, TOKENS);
        recorder.add(drawnRow(tiny, 99, 99));
        const controller = new AbortController();
        const onProgress = (stage: string, done: number): void => {
          if (stage === 'copying' && done < TOKENS) controller.abort();
        };
        await assert.rejects(
          fitPredictor(tiny, { ...wanted, signal: controller.signal, onProgress }),
          refusal('CANCELLED', /./),
        );
        assert.deepEqual(await fitPredictor(tiny, wanted), predictor);
        assert.deepEqual(await readPredictor(tiny), predictor);
      });
      await recorder.close();
      await reading(tiny, async (recorded) => {
        const few = { ...request, recorded, tokens: 4000, signal: NEVER, onProgress: () => undefined };
        await assert.rejects(
          fitPredictor(tiny, few),
          refusal('USAGE', /recorded-states\.bin: 4000 tokens are too few.*4096/),
        );
      });
    });
  });
});
