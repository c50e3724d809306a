import assert from 'node:assert/strict';
import { chmod, type FileHandle, mkdir, open, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { awaitRecorded } from '../../engine/fitting/await-recorded.js';
import { copyRecorded } from '../../engine/fitting/copy-recorded.js';
import { fitPredictor, requireFittable } from '../../engine/fitting/fit-predictor.js';
import type { RecordedRows } from '../../engine/fitting/record-layers.js';
import { RecordedStates } from '../../engine/fitting/recorded-states.js';
import { RECORDED_HEADER_BYTES, RecordedRow, recordedRowBytes } from '../../engine/recording/recorded-row.js';
import { openRecorder, type StateRecorder } from '../../engine/recording/state-recorder.js';
import { lockFile } from '../../native/index.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { FITTING_DIRECTORY, RECORDED_FILE } from '../../packs/format/pack-layout.js';
import { readPredictor } from '../../packs/predictor/predictor-file.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { RUNTIME } from '../wall.js';
import { plainShape } from './plain-shape.js';
import { pack, refusal, withCheckpoint } from './tiny-pack.js';

const NEVER = new AbortController().signal;
const SLEEPLESS = { sleep: async () => undefined };

interface Opened {
  recorder: StateRecorder | null;
  said: string[];
}

interface Surroundings {
  outside?: Runtime['outside'];
  sleep?: Runtime['sleep'];
}

async function opened(tiny: Pack, tokens: number, given: Surroundings = {}): Promise<Opened> {
  const { outside = RUNTIME.outside.bind(RUNTIME), sleep = SLEEPLESS.sleep } = given;
  const said: string[] = [];
  const say = (event: string, fields: Record<string, unknown> = {}): void => {
    const { error } = fields;
    said.push(`${event} ${error instanceof Error ? error.message : JSON.stringify(fields)}`);
  };
  const log: Logger = { error: say, warn: say, info: say, debug: say };
  return { recorder: await openRecorder({ pack: tiny, tokens }, { outside, sleep }, log), said };
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
          (await states.heads(4, { signal: NEVER, onProgress: () => undefined })).answers,
          [0, 1, 0, 1].map((answer) => 2 ** 40 + answer),
        );
        for (const index of [3, 0]) assert.deepEqual((await states.row(index))?.bytes, rows[index]?.bytes);
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
        assert.equal(await states.row(2), null);
      });
      const next = await recorderOf(tiny, 100);
      next.add(rows[3] as RecordedRow);
      await next.close();
      await reading(tiny, async (states) => {
        assert.equal(await states.rows(), 3);
        assert.deepEqual((await states.row(1))?.bytes, rows[1]?.bytes);
        assert.deepEqual((await states.row(2))?.bytes, rows[3]?.bytes);
      });
      await truncate(path, 100);
      await assert.rejects(RecordedStates.open(tiny), refusal('USAGE', /no main has recorded anything in it yet/));
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
        [header.replace(/"tokens":100\} {10}/, '"tokens":1000000000000}'), /is damaged; remove it/],
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

  it('goes on behind a reader who looks whether somebody records, and makes a file private again', async () => {
    await withPack(async (tiny, path) => {
      await (await recorderOf(tiny, 5000)).close();
      await chmod(path, 0o644);
      const reader = await open(path);
      assert.ok(lockFile(reader.fd, true));
      let tries = 0;
      const sleep = async (): Promise<void> => {
        tries += 1;
        if (tries === 3) await reader.close();
      };
      const { recorder } = await opened(tiny, 5000, { sleep });
      assert.equal(tries, 3);
      await recorder?.close();
      assert.equal((await stat(path)).mode & 0o077, 0);
    });
  });

  it('cuts off damaged rows at the end however many they are, and leaves those between', async () => {
    await withPack(async (tiny, path) => {
      const recorder = await recorderOf(tiny, 9000);
      for (let row = 0; row < 2; row++) recorder.add(drawnRow(tiny, 7, row));
      await recorder.close();
      await truncate(path, sizeOf(tiny, 1000));
      await (await recorderOf(tiny, 9000)).close();
      assert.equal((await stat(path)).size, sizeOf(tiny, 2));
    });
  });

  it('is on the disk when it has ended, and each time that many bytes are written', async () => {
    await withPack(async (tiny) => {
      const synced: number[] = [];
      const shape = { ...tiny.shape, hiddenSize: 4_000_000 };
      const manifest = { ...tiny.manifest, model: { ...tiny.manifest.model, shape } };
      const large: Pack = { ...tiny, shape, manifest };
      let written = 0;
      const outside = async <Result>(work: () => Promise<Result>): Promise<Result> => {
        const result = await work();
        if (result instanceof Object && 'datasync' in result) {
          const file = result as unknown as FileHandle;
          const write = file.write.bind(file) as (...given: unknown[]) => Promise<unknown>;
          file.write = (async (...given: unknown[]) => {
            written += 1;
            return write(...given);
          }) as FileHandle['write'];
          file.datasync = async () => void synced.push(written);
        }
        return result;
      };
      const { recorder } = await opened(large, 20, { outside });
      assert.ok(recorder !== null);
      const rows = Math.ceil((64 * 1024 * 1024) / recordedRowBytes(shape));
      const row = new RecordedRow(shape);
      row.seal(7);
      const before = written;
      for (let index = 0; index <= rows; index++) {
        recorder.add(row);
        while (written < before + index + 1) await new Promise((resolve) => setImmediate(resolve));
      }
      await recorder.close();
      assert.deepEqual(
        synced.map((count) => count - before),
        [rows, rows + 1],
      );
    });
  });

  it('leaves rows out that the disk is too slow for, says so at once, and counts them at the end', async () => {
    await withPack(async (tiny, path) => {
      let release: () => void = () => undefined;
      const held = new Promise<void>((resolve) => (release = resolve));
      let calls = 0;
      const outside = async <Result>(work: () => Promise<Result>): Promise<Result> => {
        calls += 1;
        if (calls === 4) await held;
        return work();
      };
      const { recorder, said } = await opened(tiny, 10_000_000, { outside });
      assert.ok(recorder !== null);
      const row = drawnRow(tiny, 7, 1);
      const most = Math.floor((64 * 1024 * 1024) / row.bytes.length);
      // The first is on its way to the disk.
      for (let index = 0; index < most + 1; index++) recorder.add(row);
      assert.ok(!said.join().includes('too slow'));
      for (let index = 0; index < 3; index++) recorder.add(row);
      assert.equal(said.filter((line) => line.includes('too slow')).length, 1);
      await rm(path);
      // Nothing more is to be written in this test.
      (recorder as unknown as { waiting: RecordedRow[] }).waiting.length = 0;
      release();
      await recorder.close();
      assert.match(said.join('\n'), /is closed .*"leftOut":3/);
    });
  });

  it('ends with a warning when the disk is full, and keeps the rows before', async () => {
    await withPack(async (tiny, path) => {
      let calls = 0;
      const outside = <Result>(work: () => Promise<Result>): Promise<Result> => {
        calls += 1;
        // The file is opened, looked at and prepared, and the first row is written.
        if (calls !== 5) return work();
        return Promise.reject(Object.assign(new Error('ENOSPC: no space left'), { code: 'ENOSPC' }));
      };
      const { recorder, said } = await opened(tiny, 100, { outside });
      assert.ok(recorder !== null);
      for (const seed of [0, 1, 2]) recorder.add(drawnRow(tiny, 1, seed));
      await recorder.close();
      assert.ok(!recorder.isOpen);
      assert.match(said.join(), /cannot be written; answers go on .*full.*and start main again to record on/);
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
      refusal(
        'USAGE',
        /6000 of 7000 tokens.*no main of this machine records now: start it with.*in its log.*or give --tokens 6000/,
      ),
    );
    let looks = 0;
    const stops = { ...recorded, isWritten: async () => (looks += 1) < 3 };
    await assert.rejects(awaitRecorded(stops, wait, SLEEPLESS), refusal('USAGE', /records now/));
    assert.equal(looks, 2 + 600 + 1, 'a main that starts again has five minutes');
    looks = 0;
    const again = { ...stops, rows: async () => (looks < 500 ? 6000 : 7000) };
    await awaitRecorded(again, wait, SLEEPLESS);
    await assert.rejects(
      awaitRecorded({ ...recorded, limit: 6500 }, wait, SLEEPLESS),
      refusal('USAGE', /main records 6500 at most.*start main with main\.record_tokens 7000/),
    );
    await assert.rejects(
      awaitRecorded(recorded, { ...wait, signal: AbortSignal.abort() }, SLEEPLESS),
      refusal('CANCELLED', /6000 of 7000 tokens recorded; main goes on/),
    );
  });

  it('is refused before anybody waits, for too few tokens, too little memory, and routers without a choice', () => {
    const recorded = { path: 'p' } as RecordedStates;
    const tiny = { directory: 'd', shape: plainShape({ experts: 8, expertLayers: 2 }) };
    const request = { tokens: 5000, memoryBytes: 1e9, recorded };
    requireFittable(tiny, request);
    assert.throws(
      () => requireFittable(tiny, { ...request, tokens: 4095 }),
      refusal('USAGE', /^p: 4095 tokens are too few/),
    );
    assert.throws(
      () => requireFittable(tiny, { ...request, memoryBytes: 1000 }),
      refusal('USAGE', /needs .* of memory/),
    );
    const all = { ...tiny, shape: { ...tiny.shape, expertsPerToken: 8 } };
    assert.throws(() => requireFittable(all, request), refusal('MODEL_UNSUPPORTED', /uses all 8 experts/));
  });

  it('copies rows by layer, from where it was interrupted', async () => {
    await withPack(async ({ shape, ...tiny }) => {
      const rows = [0, 1, 2].map((index) => drawnRow({ shape, ...tiny }, 7, index));
      const written: RecordedRows[] = [];
      const kept: number[] = [];
      const done: number[] = [];
      await copyRecorded({ row: async (index) => rows[index] ?? null }, [2, 0, 1], shape, {
        firstRow: 1,
        signal: NEVER,
        record: async (some) => void written.push(some),
        keep: async (count) => void kept.push(count),
        onProgress: (count) => void done.push(count),
      });
      assert.deepEqual([kept, done], [[3], [3]]);
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

  it('copies a damaged row as one without choices, and keeps what is copied when it is interrupted', async () => {
    await withPack(async ({ shape, ...tiny }) => {
      const rows = Array.from({ length: 600 }, (_, index) => drawnRow({ shape, ...tiny }, 7, index));
      const written: RecordedRows[] = [];
      const kept: number[] = [];
      const controller = new AbortController();
      await assert.rejects(
        copyRecorded({ row: async (index) => (index === 1 ? null : (rows[index] ?? null)) }, [...rows.keys()], shape, {
          firstRow: 0,
          signal: controller.signal,
          record: async (some) => void written.push(some),
          keep: async (count) => void kept.push(count),
          onProgress: () => controller.abort(),
        }),
        refusal('CANCELLED', /./),
      );
      assert.deepEqual(kept, [512]);
      const { hiddenSize: size, expertsPerToken: k } = shape;
      for (const { states, choices } of written) {
        assert.ok(states.subarray(size, 2 * size).every((value) => value === 0));
        assert.ok(choices.subarray(k, 2 * k).every((expert) => expert === -1));
        assert.ok(!choices.subarray(2 * k).includes(-1));
      }
    });
  });

  it('leaves damaged rows out and says how many, keeps its work private, and refuses a file with too many', async () => {
    await withPack(async (tiny, path) => {
      const TOKENS = 4100;
      const recorder = await recorderOf(tiny, TOKENS);
      for (let row = 0; row < TOKENS; row++) recorder.add(drawnRow(tiny, Math.floor(row / 100), row));
      await recorder.close();
      const damage = async (rows: readonly number[]): Promise<void> => {
        const file = await open(path, 'r+');
        for (const row of rows) await file.write(Buffer.from([1, 2, 3]), 0, 3, sizeOf(tiny, row) + 20);
        await file.close();
      };
      // Rows that are trained with, and one that is held back.
      await damage([0, 5, 705]);
      const folder = join(tiny.directory, FITTING_DIRECTORY);
      await mkdir(folder, { mode: 0o755 });
      const said: number[] = [];
      const modes = new Map<string, number>();
      const onProgress = (stage: string): void => {
        if (stage === 'reading' || modes.size > 0) return;
        modes.set('.', statSync(folder).mode);
        for (const name of readdirSync(folder)) {
          if (!name.startsWith('fitting.lock')) modes.set(name, statSync(join(folder, name)).mode);
        }
      };
      await reading(tiny, async (recorded) => {
        const request = { text: null, memoryBytes: 64 * 1024 * 1024, seed: 1, units: 4, runtime: RUNTIME };
        const wanted = { ...request, recorded, tokens: TOKENS, signal: NEVER, onProgress };
        const onDamaged = (rows: number): void => void said.push(rows);
        const before = process.umask(0);
        try {
          const { recall } = await fitPredictor(tiny, { ...wanted, onDamaged });
          assert.ok(recall.every((entry) => entry.recall > 0 && entry.recall <= 1));
        } finally {
          process.umask(before);
        }
        assert.deepEqual(said, [3]);
        assert.ok(modes.size > 3);
        for (const [name, mode] of modes) assert.equal(mode & 0o077, 0, name);
        await damage(Array.from({ length: 2500 }, (_, row) => row));
        await assert.rejects(
          fitPredictor(tiny, wanted),
          refusal('PACK_CORRUPT', /recorded-states\.bin: 2500 of 4100 rows are damaged; remove it/),
        );
      });
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
        assert.deepEqual([...stages], ['reading', 'copying', 'training']);
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
