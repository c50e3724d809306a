import assert from 'node:assert/strict';
import {
  FROM_STORAGE,
  PLAIN_LOADER,
  allFinite,
  crc32c,
  createExpertMaps,
  decodeChunk,
  encodeChunk,
  joinPlanes,
  logSumExp,
  openTensor,
  sliceRows,
  splitPlanes,
  tokenWeights,
  trainExpertMaps,
  type Device,
  type ExpertMaps,
  type ExpertSlots,
  type Model,
  type Pass,
  type Sequence,
} from '../../native/index.js';
import type { ExpertMapsShape, LayerMaps } from '../../shared/model/expert-maps.js';
import { plainGlu } from '../../engine/emulation/plain-shape.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { FIXTURE_SIZES, expertSource, loadFixture, openTestDevice } from './native-test-model.js';

const { hiddenSize, intermediateSize } = FIXTURE_SIZES;
const EXPERT_SHAPE = { hiddenSize, glu: plainGlu(intermediateSize), format: 'bf16' } as const;

/** A call of the addon, with right arguments. */
interface Call {
  readonly name: string;
  readonly run: (...args: never[]) => unknown;
  readonly args: readonly unknown[];
}

function detached(): Uint8Array {
  const bytes = new Uint8Array(64);
  structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  return bytes;
}

const MAPS_SHAPE: ExpertMapsShape = { hiddenSize: 4, experts: 3, units: 2, layers: 1, distances: [0] };
const LAYER_MAPS: LayerMaps = {
  units: new Int8Array(8),
  unitScales: new Float32Array(2),
  heads: new Int8Array(6),
  headScales: new Float32Array(3),
  biases: new Float32Array(3),
};

/** An object whose fields cannot be read. */
const UNREADABLE = new Proxy(
  {},
  {
    get: () => {
      throw new Error('unreadable');
    },
  },
);

/** Methods that take nothing. */
const WITHOUT_ARGUMENTS: readonly string[] = [
  'constructor',
  'dispose',
  'info',
  'residentWeights',
  'createSequence',
  'cancelHold',
  'cancelPack',
];

const WRONG_VALUES: readonly unknown[] = [
  undefined,
  null,
  true,
  '',
  'none',
  NaN,
  Infinity,
  -Infinity,
  -1,
  0.5,
  2 ** 53,
  -(2 ** 31),
  10n,
  Symbol('wrong'),
  {},
  [],
  [null],
  UNREADABLE,
  () => 0,
  new Date(0),
  new Uint8Array(0),
  new Uint8Array(3),
  detached(),
  new Float32Array(1),
  new Int32Array(1),
  new Float64Array(2),
  new DataView(new ArrayBuffer(8)),
  new ArrayBuffer(8),
  new Uint8ClampedArray(4),
];

type Path = readonly (string | number)[];

/** The paths of an argument and of all fields in it, but of typed arrays and handles none. */
function pathsIn(value: unknown, path: Path): Path[] {
  const isPlain = Array.isArray(value) || (value !== null && Object.getPrototypeOf(value) === Object.prototype);
  if (!isPlain) return [path];
  return [path, ...Object.entries(value as object).flatMap(([name, field]) => pathsIn(field, [...path, name]))];
}

function replaced(value: unknown, [name, ...rest]: Path, wrong: unknown): unknown {
  if (name === undefined) return wrong;
  const fields = value as Record<string | number, unknown>;
  const field = replaced(fields[name], rest, wrong);
  if (Array.isArray(value)) return value.map((old: unknown, index) => (String(index) === String(name) ? field : old));
  return { ...fields, [name]: field };
}

describe('a native call with a wrong argument', () => {
  let device: Device;
  let model: Model;
  let slots: ExpertSlots;
  let sequence: Sequence;
  let pass: Pass;
  let maps: ExpertMaps;
  let calls: Call[];

  const call = (name: string, run: (...args: never[]) => unknown, ...args: unknown[]): Call => ({ name, run, args });

  before(async () => {
    device = openTestDevice();
    model = await loadFixture(device, { experts: false });
    slots = device.createExpertSlots(EXPERT_SHAPE, 2, 4, PLAIN_LOADER);
    slots.register(expertSource(0, 0));
    sequence = model.createSequence();
    pass = model.createPass(2);
    maps = createExpertMaps(MAPS_SHAPE, [LAYER_MAPS]);
    const hidden = new Uint8Array(hiddenSize * 4);
    const one = Int32Array.of(0);
    const makeSlots = (...args: Parameters<Device['createExpertSlots']>): void => {
      device.createExpertSlots(...args).dispose();
    };
    const makeMaps = (...args: Parameters<typeof createExpertMaps>): void => createExpertMaps(...args).dispose();
    const request = { ...FROM_STORAGE, held: 0, order: [0, 1, 2].map((block) => ({ block, position: 0 })) };
    calls = [
      call('createExpertSlots', makeSlots, EXPERT_SHAPE, 1, 1, PLAIN_LOADER),
      call('expertSlotBytes', device.expertSlotBytes.bind(device), EXPERT_SHAPE, 1, PLAIN_LOADER),
      call('createModel', device.createModel.bind(device), model.shape),
      call('createPass', model.createPass.bind(model), 1),
      call('loadDense', model.loadDense.bind(model), 'embedding', 0, expertSource(0, 0).gate, 'bf16'),
      call('loadResidentExpert', model.loadResidentExpert.bind(model), 0, 0, expertSource(0, 0), 'bf16', 'both'),
      call('readRows', sequence.readRows.bind(sequence), 0, 0, 0),
      call('writeRows', sequence.writeRows.bind(sequence), 0, 0, 1, new Uint8Array(4)),
      call('truncate', sequence.truncate.bind(sequence), 0),
      call('fork', sequence.fork.bind(sequence), 0),
      call('bytesToWrite', sequence.bytesToWrite.bind(sequence), 0, 1),
      call('begin', pass.begin.bind(pass), [sequence], one, one, Int32Array.of(7)),
      call('attend', pass.attend.bind(pass), 0, hidden),
      call('attendHere', (layer: number, into: Uint8Array) => pass.attendHere?.(layer, into), 0, hidden),
      call('combine', pass.combine.bind(pass), 0, hidden, new Float32Array(2)),
      call(
        'combineHere',
        (layer: number, outputs: Uint8Array, weights: Float32Array) => pass.combineHere?.(layer, outputs, weights),
        ...[0, hidden, new Float32Array(2)],
      ),
      call('residual', pass.residual.bind(pass), new Float32Array(hiddenSize)),
      call('residualHere', (into: Float32Array) => pass.residualHere?.(into), new Float32Array(hiddenSize)),
      call('createExpertMaps', makeMaps, MAPS_SHAPE, [LAYER_MAPS]),
      call('trainExpertMaps', trainExpertMaps, {
        hiddenSize: 2,
        experts: 2,
        expertsPerToken: 1,
        units: 1,
        states: new Float32Array(4),
        choices: [new Int32Array(2)],
        epochs: 1,
        seed: 1,
        threads: 1,
      }),
      call('predict', maps.predict.bind(maps), 0, new Float32Array(4), 1),
      call('predictHere', maps.predictHere.bind(maps), 0, new Float32Array(4), 1),
      call('chooseAhead', pass.chooseAhead.bind(pass), 1),
      call('forward', pass.forward.bind(pass), null),
      call('logits', pass.logits.bind(pass), one),
      call('states', pass.states.bind(pass), one, true),
      call('register', slots.register.bind(slots), expertSource(0, 0)),
      call('load', slots.load.bind(slots), 0, 0, request),
      call('cancel', slots.cancel.bind(slots), 0),
      call('prioritize', slots.prioritize.bind(slots), 0),
      call('reorder', slots.reorder.bind(slots), 0, request.order),
      call('execute', slots.execute.bind(slots), 0, 1, hidden, hidden.slice(), ['both']),
      call(
        'executeHere',
        (slot: number, rows: number, from: Uint8Array, into: Uint8Array, readings: ['both']) =>
          slots.executeHere?.(slot, rows, from, into, readings),
        ...[0, 1, hidden, hidden.slice(), ['both']],
      ),
      call('hold', slots.hold.bind(slots), 0),
      call('dropHeld', slots.dropHeld.bind(slots), 0),
      call('pack', slots.pack.bind(slots), 0),
      call('letGo', slots.letGo.bind(slots), 1),
      call('take', slots.take.bind(slots), 1),
      call('letGoLower', slots.letGoLower.bind(slots), 1),
      call('takeLower', slots.takeLower.bind(slots), 1),
      call('openTensor', openTensor, expertSource(0, 0).gate),
      call('splitPlanes', splitPlanes, new Uint8Array(4), 'bf16-e8-sm8'),
      call('joinPlanes', joinPlanes, [new Uint8Array(2), new Uint8Array(2)], 'bf16-e8-sm8'),
      call('sliceRows', sliceRows, [new Uint8Array(64)], 'none-bf16', 1, 32, 'sliced84'),
      call('crc32c', crc32c, hidden, 0),
      call('allFinite', allFinite, hidden),
      call('tokenWeights', tokenWeights, new Float32Array(2), 0, 1),
      call('logSumExp', logSumExp, new Float32Array(2), 0),
      call('encodeChunk', encodeChunk, 'zstd', 1, hidden, 64),
      call('decodeChunk', decodeChunk, 'raw', hidden, hidden.length, 64),
    ];
  });

  after(() => {
    maps.dispose();
    device.dispose();
  });

  it('is refused with an OdmoeError and never ends the process', async () => {
    const handles = [model, slots, sequence, pass, maps, device];
    for (const { name, run, args } of calls)
      for (const path of args.flatMap((argument, place) => pathsIn(argument, [place])))
        for (const [place, wrong] of [...WRONG_VALUES, ...handles].entries())
          try {
            await run(...(replaced([...args], path, wrong) as never[]));
          } catch (thrown) {
            assert.ok(
              thrown instanceof OdmoeError,
              `${name} ${path.join('.')}, wrong value ${place}: ${String(thrown)}`,
            );
          }
  }).timeout(120_000);

  it('is tried for every method of every handle', () => {
    const tried = new Set(calls.map(({ name }) => name));
    const handles = [device, model, slots, sequence, pass, maps];
    const methods = handles.flatMap((handle) => {
      const fields = Object.getOwnPropertyDescriptors(Object.getPrototypeOf(handle) as object);
      return Object.entries(fields).flatMap(([name, { value }]) => (typeof value === 'function' ? [name] : []));
    });
    const takesArguments = (name: string): boolean => !WITHOUT_ARGUMENTS.includes(name);
    assert.deepEqual([...new Set(methods)].filter((name) => takesArguments(name) && !tried.has(name)).sort(), []);
  });

  const refused = (name: string, place: number, wrong: unknown, message: RegExp): Promise<void> =>
    assert.rejects(
      async () => {
        const { run, args } = calls.find((one) => one.name === name) as Call;
        await run(...(args.with(place, wrong) as never[]));
      },
      (thrown) => thrown instanceof OdmoeError && thrown.code === 'INTERNAL' && message.test(thrown.message),
    );

  it('names the argument, its value and what it must be', async () => {
    await refused('cancel', 0, 0.5, /native call: slot is 0\.5, but must be an integer from 0 to 2147483647/);
    await refused('attend', 1, new Float32Array(2), /hidden is a value of another type, but must be a Uint8Array/);
    await refused('logits', 0, [0], /rows is .*, but must be an Int32Array/);
    await refused('combine', 2, new Uint8Array(8), /weights is .*, but must be a Float32Array/);
    await refused('begin', 0, [pass], /no handle of the wanted kind/);
    await refused('splitPlanes', 1, 'thirds', /split is thirds, but must be one of none-bf16/);
    await refused(
      'load',
      2,
      {
        ...FROM_STORAGE,
        parts: { ...FROM_STORAGE.parts, exponent: { from: 'entry', entry: -1 } },
      },
      /exponents\.entry is -1/,
    );
    const unwanted = { from: 'notWanted', entry: 0 };
    await refused(
      'load',
      2,
      { ...FROM_STORAGE, parts: { ...FROM_STORAGE.parts, signMantissa: unwanted } },
      /signMantissa\.entry is 0/,
    );
    await refused('execute', 4, ['upper'], /reading is upper, but must be one of both, upperCentred, upperAmat/);
    await refused('tokenWeights', 1, NaN, /highest is NaN, but must be a finite number/);
    await refused('predict', 0, 1, /the states for the expert maps of layer 1 do not fit 1 rows of 4/);
    await refused('createExpertMaps', 1, [], /expert maps for 1 layers were given for 0/);
    await refused('createExpertSlots', 3, { ...PLAIN_LOADER, readDepth: 17 }, /depth is 17/);
  });

  it('rejects where the method returns a promise', () => {
    const outcome = slots.hold('none' as unknown as number);
    assert.ok(outcome instanceof Promise);
    return assert.rejects(outcome, { code: 'INTERNAL' });
  });
});
