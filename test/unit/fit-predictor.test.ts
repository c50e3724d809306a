import assert from 'node:assert/strict';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fitPredictor, type FittingRequest } from '../../engine/fitting/fit-predictor.js';
import { answerBatch } from '../../engine/fitting/own-answers.js';
import { recordLayers, type RecordedRows } from '../../engine/fitting/record-layers.js';
import { LocalSequence } from '../../engine/generation/local-runner.js';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { type Device, type Model, openDevice, type Pass, type Sequence } from '../../native/index.js';
import { openPack, type Pack } from '../../packs/format/open-pack.js';
import { FITTING_DIRECTORY, PREDICTOR_FILE } from '../../packs/format/pack-layout.js';
import { readPredictor } from '../../packs/predictor/predictor-file.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { RUNTIME } from '../wall.js';
import { TINY_CONFIG, tinyTensors } from './tiny-checkpoint.js';
import { pack, refusal, withCheckpoint } from './tiny-pack.js';

/** Epochs of each layer's training. */
const EPOCHS = 24;
const MEMORY_BYTES = 64 * 1024 * 1024;
const REQUEST: FittingRequest = {
  tokens: 4100,
  text: null,
  recorded: null,
  memoryBytes: MEMORY_BYTES,
  seed: 7,
  units: 8,
  signal: new AbortController().signal,
  runtime: RUNTIME,
  onProgress: () => undefined,
};
/** Six layers, so that each distance has some. */
const DEEP_CONFIG = { ...TINY_CONFIG, num_hidden_layers: 6 };

/** BF16 numbers between 1/8 and 1/2 of both signs: no layer makes them infinite, and routers choose by the token. */
function smallNumbers(sizeBytes: number, seed: number): Uint8Array {
  const random = new SeededRandom(seed);
  return Uint8Array.from({ length: sizeBytes }, (_, index) =>
    index % 2 === 0 ? random.int(256) : random.chance(0.5) ? 0xbe : 0x3e,
  );
}

async function withPack(use: (tiny: Pack) => Promise<void>): Promise<void> {
  await withCheckpoint(
    async (checkpoint, output) => {
      await pack(checkpoint, output);
      await use(await openPack(output));
    },
    tinyTensors(DEEP_CONFIG, () => 'BF16', smallNumbers),
    DEEP_CONFIG,
  );
}

async function onDevice(budgetBytes: number, use: (device: Device) => Promise<void>): Promise<void> {
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes });
  try {
    await use(device);
  } finally {
    device.dispose();
  }
}

async function withModel(
  device: Device,
  source: Pack,
  experts: boolean,
  use: (model: Model) => Promise<void>,
): Promise<void> {
  const model = device.createModel(source.shape);
  try {
    await loadDenseWeights(model, source, 'shipped');
    if (experts) await loadResidentExperts(model, source, 'shipped');
    await use(model);
  } finally {
    model.dispose();
  }
}

/** Sequences of drawn tokens, of different lengths. */
function drawnSequences(vocabSize: number): number[][] {
  const random = new SeededRandom(3);
  return Array.from({ length: 40 }, () => Array.from({ length: 1 + random.int(60) }, () => random.int(vocabSize)));
}

/** What is recorded, by layer and row. */
async function recorded(
  source: Pack,
  sequences: number[][],
  memoryBytes: number,
): Promise<{ rows: Map<string, string>; waves: number[] }> {
  const { hiddenSize, expertsPerToken } = source.shape;
  const rows = new Map<string, string>();
  const waves: number[] = [];
  const record = async ({ layer, firstRow, states, choices }: RecordedRows): Promise<void> => {
    for (let row = 0; row * expertsPerToken < choices.length; row += 1) {
      const state = states.slice(row * hiddenSize, (row + 1) * hiddenSize);
      const chosen = choices.slice(row * expertsPerToken, (row + 1) * expertsPerToken);
      rows.set(`${layer} ${firstRow + row}`, `${Buffer.from(state.buffer).toString('hex')} ${chosen.join(',')}`);
    }
  };
  await onDevice(0, (device) =>
    withModel(device, source, false, (model) =>
      recordLayers(
        {
          device,
          model,
          source,
          memoryBytes,
          signal: REQUEST.signal,
          record,
          waveDone: async (end) => {
            waves.push(end);
          },
          onProgress: () => undefined,
        },
        sequences,
        0,
      ),
    ),
  );
  return { rows, waves };
}

describe('fitting a predictor', function () {
  this.timeout(60_000);

  it('records the choices of the model that has all experts in memory, whatever memory it may take', async () => {
    await withPack(async (tiny) => {
      const sequences = drawnSequences(tiny.shape.vocabSize);
      const whole = await recorded(tiny, sequences, MEMORY_BYTES);
      assert.deepEqual(whole.waves, [sequences.flat().length]);
      assert.equal(whole.rows.size, sequences.flat().length * tiny.shape.expertLayers);
      const small = await recorded(tiny, sequences, 1);
      assert.ok(small.waves.length > 1);
      assert.deepEqual(small.rows, whole.rows);
      await onDevice(0, (device) =>
        withModel(device, tiny, true, async (model) => {
          let row = 0;
          for (const ids of sequences) {
            const first = row;
            const sequence = new LocalSequence(model, tiny.shape, 64, (position, layer, experts) => {
              const found = whole.rows.get(`${layer} ${first + position}`)?.split(' ')[1];
              assert.equal(found, experts.join(','));
            });
            await sequence.prefill(ids);
            await sequence.end();
            row += ids.length;
          }
        }),
      );
    });
  });

  it('gives the same file from the same inputs, also after interruptions at any stage, and leaves nothing else', async () => {
    await withPack(async (tiny) => {
      const path = join(tiny.directory, PREDICTOR_FILE);
      const predictor = await fitPredictor(tiny, REQUEST);
      assert.deepEqual(await readPredictor(tiny), predictor);
      assert.equal(predictor.text, 'own answers');
      assert.ok(predictor.tokens >= REQUEST.tokens);
      assert.deepEqual(predictor.shape, { hiddenSize: 16, experts: 3, units: 8, layers: 6, distances: [0, 1, 2, 4] });
      assert.equal(predictor.recall.length, 6 + 5 + 4 + 2);
      const wanted = await readFile(path);
      assert.ok(!(await readdir(tiny.directory)).includes(FITTING_DIRECTORY));
      await rm(path);
      for (const stopped of ['answers', 'recording', 'training'] as const) {
        const controller = new AbortController();
        const onProgress: FittingRequest['onProgress'] = (stage, done) => {
          if (stage === stopped && done > (stage === 'training' ? EPOCHS : 0)) controller.abort();
        };
        const request = { ...REQUEST, memoryBytes: 6 * 1024 * 1024, signal: controller.signal, onProgress };
        await assert.rejects(fitPredictor(tiny, request), refusal('CANCELLED', /interrupted/));
      }
      assert.equal(await readPredictor(tiny), null);
      const stages = new Set<string>();
      let least = Infinity;
      const onProgress: FittingRequest['onProgress'] = (stage, done) => {
        stages.add(stage);
        if (stage === 'training') least = Math.min(least, done);
      };
      await fitPredictor(tiny, { ...REQUEST, onProgress });
      assert.deepEqual([...stages], ['answers', 'training'], 'what was recorded is not recorded again');
      assert.equal(least, EPOCHS, 'the layer that was trained is not trained again');
      assert.deepEqual(await readFile(path), wanted);
      const other = await fitPredictor(tiny, { ...REQUEST, seed: 8 });
      assert.notDeepEqual(other.layers, predictor.layers);
    });
  });

  it('ends within a batch of answers when it is interrupted', async () => {
    const controller = new AbortController();
    let passes = 0;
    const pass: Partial<Pass> = {
      begin: async () => undefined,
      forward: async () => {
        passes += 1;
        if (passes === 40) controller.abort();
      },
      logits: async (rows) => new Float32Array(4 * rows.length),
      dispose: () => undefined,
    };
    const model: Partial<Model> = {
      createPass: () => pass as Pass,
      createSequence: () => ({ dispose: () => undefined }) as Sequence,
    };
    const { signal } = controller;
    const answering = {
      model: model as Model,
      tokenizer: null,
      eosTokenIds: [],
      vocabSize: 4,
      maxPositions: 64,
      signal,
    };
    await assert.rejects(answerBatch(answering, 1, 0), refusal('CANCELLED', /interrupted/));
    assert.equal(passes, 40);
  });

  it('is refused in words for too little memory, a text without a tokenizer, and routers without a choice', async () => {
    await withPack(async (tiny) => {
      await assert.rejects(
        fitPredictor(tiny, { ...REQUEST, memoryBytes: 10_000 }),
        refusal('USAGE', /training with 4100 tokens needs .* may take 9\.77 KiB.*fewer --tokens/),
      );
      // The first holds no model, the second no passes beside it.
      for (const memoryBytes of [530_000, 600_000]) {
        await assert.rejects(
          fitPredictor(tiny, { ...REQUEST, memoryBytes }),
          refusal('USAGE', /does not fit into 5.*KiB of memory.*--text/),
        );
      }
      const text = { path: 'notes.txt', content: 'word '.repeat(9000) };
      await assert.rejects(fitPredictor(tiny, { ...REQUEST, text }), refusal('USAGE', /has no tokenizer\.json/));
      const all = { ...tiny, shape: { ...tiny.shape, expertsPerToken: 3 } };
      await assert.rejects(
        fitPredictor(all, REQUEST),
        refusal('MODEL_UNSUPPORTED', /uses all 3 experts.*needs no predictor/),
      );
      assert.ok(!(await readdir(tiny.directory)).includes(FITTING_DIRECTORY));
      await mkdir(join(tiny.directory, FITTING_DIRECTORY));
      await writeFile(join(tiny.directory, FITTING_DIRECTORY, 'work.json'), '{');
      await fitPredictor(tiny, { ...REQUEST, units: 2 });
    });
  });
});
