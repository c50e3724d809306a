import assert from 'node:assert/strict';
import { loadDenseWeights, loadResidentExperts } from '../../engine/loading/load-weights.js';
import { FROM_STORAGE, PLAIN_LOADER, type Device, type Model, type Pass, type Sequence } from '../../native/index.js';
import { plainGlu, plainShape } from '../../engine/emulation/plain-shape.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { shapeProblem } from '../../shared/model/shape-problem.js';
import { chooseToken } from '../../engine/sampling/choose-token.js';
import { resolveSampling } from '../../shared/wire/sampling-options.js';
import { SyntheticTrace } from '../../simulator/trace/synthetic-trace.js';
import { TraceDevice } from '../../simulator/trace/trace-device.js';
import {
  mainModel,
  mainToken,
  shadowModel,
  tracePromptIds,
  traceShape,
  wrongToken,
  type TraceModel,
} from '../../simulator/trace/trace-model.js';
import { tracePack } from '../../simulator/trace/trace-pack.js';

const trace = new SyntheticTrace({
  layers: 3,
  experts: 6,
  expertsPerToken: 2,
  prompts: 2,
  promptTokens: 4,
  iterations: 30,
  recall: 0.5,
  acceptance: 0.5,
  seed: 3,
});
const PROFILED = plainShape({
  layers: 3,
  hiddenSize: 8,
  intermediateSize: 8,
  heads: 2,
  keyValueHeads: 1,
  headDim: 4,
  vocabSize: 100,
  experts: 6,
  expertsPerToken: 2,
});
const GREEDY = resolveSampling(null, () => 0);

interface Opened {
  model: Model;
  pass: Pass;
  sequence: Sequence;
}

async function open(traced: TraceModel): Promise<Opened> {
  const shape = traceShape(trace, PROFILED);
  const model = new TraceDevice(traced).createModel(shape);
  const pack = tracePack('traced', shape);
  await loadDenseWeights(model, pack, 'int8');
  await loadResidentExperts(model, pack, 'int8');
  return { model, pass: model.createPass(8), sequence: model.createSequence() };
}

async function begin({ pass, sequence }: Opened, position: number, tokenIds: readonly number[]): Promise<void> {
  const positions = Int32Array.from(tokenIds, (_, row) => position + row);
  await pass.begin([sequence], new Int32Array(tokenIds.length), positions, Int32Array.from(tokenIds));
}

/** Experts by layer, rows after one another. */
async function forward(opened: Opened, position: number, tokenIds: readonly number[]): Promise<number[][]> {
  await begin(opened, position, tokenIds);
  const layers: number[][] = [];
  await opened.pass.forward((layer, { experts }) => (layers[layer] = [...experts]));
  return layers;
}

async function nextToken({ pass }: Opened, row: number): Promise<number> {
  return chooseToken(await pass.logits(Int32Array.of(row)), 0, GREEDY);
}

describe('the simulated trace device', () => {
  it("makes main choose the trace's experts, and gives main's tokens", async () => {
    const opened = await open(mainModel(trace));
    const prompt = tracePromptIds(trace, 1);
    await begin(opened, 0, prompt);
    for (let layer = 0; layer < 3; layer += 1) {
      assert.equal(opened.sequence.length, 0);
      const { experts, weights } = await opened.pass.attend(layer, new Uint8Array(16));
      const expected = prompt.flatMap((_, position) => [
        ...trace.activated({ prompt: 1, position, layer, onPath: true }),
      ]);
      assert.deepEqual([...experts], expected);
      assert.deepEqual([...weights], new Array(8).fill(0.5));
    }
    assert.equal(opened.sequence.length, 4);
    assert.equal(await nextToken(opened, 3), mainToken(1));
    assert.equal(opened.sequence.readRows(0, 1, 2).length, 32);
  });

  it("runs shadow's prompt on activated experts, and its answer on predicted ones", async () => {
    const opened = await open(shadowModel(trace, 'traced'));
    const prompt = tracePromptIds(trace, 0);
    const [first = []] = await forward(opened, 0, prompt);
    assert.deepEqual(first.slice(6), trace.activated({ prompt: 0, position: 3, layer: 0, onPath: true }));
    const layers = await forward(opened, 4, [mainToken(0)]);
    layers.forEach((experts, layer) => {
      assert.deepEqual(experts, trace.predicted({ prompt: 0, position: 4, layer, onPath: true }));
    });
    assert.equal(opened.sequence.length, 5);
  });

  it("makes shadow's guesses right or wrong as in the trace, and wrong behind a wrong one", async () => {
    const opened = await open(shadowModel(trace, 'traced'));
    await forward(opened, 0, tracePromptIds(trace, 0));
    const seen = new Set<boolean>();
    for (let position = 4; position < 20; position += 1) {
      await forward(opened, position, [mainToken(0)]);
      const right = trace.guessedRight(0, position + 1);
      seen.add(right);
      assert.equal(await nextToken(opened, 0), right ? mainToken(0) : wrongToken(trace));
    }
    assert.equal(seen.size, 2);
    await forward(opened, 20, [wrongToken(trace)]);
    await forward(opened, 21, [mainToken(0)]);
    assert.equal(await nextToken(opened, 0), wrongToken(trace));
    // Main's word for position 20: what was run on the wrong token is forgotten.
    opened.sequence.truncate(20);
    const [experts] = await forward(opened, 20, [mainToken(0)]);
    assert.deepEqual(experts, trace.predicted({ prompt: 0, position: 20, layer: 0, onPath: true }));
  });

  it('gives other values than the trace behind a wrong draft', async () => {
    const opened = await open(mainModel(trace));
    await forward(opened, 0, tracePromptIds(trace, 0));
    const [experts = []] = await forward(opened, 4, [mainToken(0), wrongToken(trace), mainToken(0)]);
    const at = (position: number, onPath: boolean) => trace.activated({ prompt: 0, position, layer: 0, onPath });
    assert.deepEqual(experts, [...at(4, true), ...at(5, false), ...at(6, false)]);
  });

  it('makes a guess the token of its own text where tokens are not aligned', async () => {
    const opened = await open(shadowModel(trace, 'right'));
    await forward(opened, 0, tracePromptIds(trace, 1));
    for (let position = 4; position < 12; position += 1) {
      await forward(opened, position, [mainToken(1)]);
      assert.equal(await nextToken(opened, 0), mainToken(1));
    }
  });

  it('fails past the end of the trace, and for a trace that lacks experts', async () => {
    const opened = await open(shadowModel(trace, 'traced'));
    await forward(opened, 0, tracePromptIds(trace, 0));
    const [experts] = await forward(opened, 34, [mainToken(0)]);
    assert.deepEqual(experts, trace.predicted({ prompt: 0, position: 34, layer: 0, onPath: false }));
    const short = { ...trace, activated: () => [], promptTokens: () => 1, iterations: () => 1 };
    const broken = mainModel({ ...short, predicted: () => [], guessedRight: () => true });
    const isInternal = (thrown: unknown) => thrown instanceof OdmoeError && thrown.code === 'INTERNAL';
    await assert.rejects(forward(await open(broken), 0, [0]), isInternal);
  });

  it('has the layers of the profiled model: with and without experts, recurrent or not', async () => {
    const [layer] = PROFILED.layers;
    assert.ok(layer);
    const dense = { ...layer, routed: null, always: { glu: plainGlu(8), gated: false } };
    const mixer = { kind: 'convolution', taps: 3 } as const;
    const shape = traceShape(trace, { layers: [dense, layer, { ...layer, mixer }, layer], expertLayers: 3 });
    assert.equal(shapeProblem(shape), null);
    assert.deepEqual(
      shape.layers.map((each) => [each.routed !== null, each.mixer.kind]),
      [
        [false, 'attention'],
        [true, 'attention'],
        [true, 'convolution'],
        [true, 'attention'],
      ],
    );
    const sequence = new TraceDevice(mainModel(trace)).createModel(shape).createSequence();
    assert.equal(sequence.oldestPosition, 0);
    assert.throws(() => traceShape(trace, { layers: [layer], expertLayers: 1 }), { code: 'INTERNAL' });
  });

  it('removes only the last pass and a few positions before it in a recurrent model', async () => {
    const [layer] = PROFILED.layers;
    assert.ok(layer);
    const recurrent = { ...layer, mixer: { kind: 'convolution', taps: 3 } as const };
    const shape = traceShape(trace, { layers: [recurrent, layer, layer], expertLayers: 3 });
    const model = new TraceDevice(mainModel(trace)).createModel(shape);
    const opened = { model, pass: model.createPass(64), sequence: model.createSequence() };
    await forward(opened, 0, new Array<number>(40).fill(mainToken(0)));
    assert.equal(opened.sequence.oldestPosition, 0);
    await forward(opened, 40, [mainToken(0), mainToken(0)]);
    assert.equal(opened.sequence.oldestPosition, 8);
  });

  it("loads a worker's slots at once and answers with zeros", async () => {
    const device: Device = new TraceDevice(null);
    const shape = { hiddenSize: 1, glu: plainGlu(1), format: 'bf16' } as const;
    const slots = device.createExpertSlots(shape, 2, 8, PLAIN_LOADER);
    const pack = tracePack('traced', traceShape(trace, PROFILED));
    const parts = { ...FROM_STORAGE.parts, exponent: { from: 'storage', entry: 1 } as const };
    const outcome = await slots.load(1, slots.register(pack.expert(0, 0)), { ...FROM_STORAGE, parts });
    assert.equal(outcome.loaded, true);
    assert.deepEqual(outcome.cached, { exponent: true, signMantissa: false });
    const output = new Uint8Array(8).fill(7);
    await slots.execute(1, 2, new Uint8Array(8), output);
    assert.deepEqual([...output], new Array(8).fill(0));
  });
});
