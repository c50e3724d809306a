import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { instructionSets, type DeviceOptions } from '../../native/index.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { logitBits, openResidentModel } from './generate-resident-model.js';

const fixture = join(packageRoot(), 'test', 'fixtures', 'mixtral');
/** Longer than one attention chunk (256 positions). */
const PROMPT = Array.from({ length: 300 }, (_, n) => (n * 37 + 11) % 300);
const FURTHER = [5, 17, 290, 0, 123];

async function bitsFor(
  directory: string,
  prefillRows: number,
  device: Partial<DeviceOptions> = {},
): Promise<Uint32Array[]> {
  const model = await openResidentModel(directory, device);
  try {
    return await logitBits(model, PROMPT, FURTHER, prefillRows);
  } finally {
    model.dispose();
  }
}

describe('one arithmetic: the logits are the same to the bit', () => {
  let expected: Uint32Array[];
  before(async () => {
    expected = await bitsFor(fixture, 64);
    assert.ok(
      new Set(expected.map((bits) => bits.join(','))).size === expected.length,
      'each token has logits of its own',
    );
  });

  for (const prefillRows of [1, 7, 300]) {
    it(`for a prompt in passes of ${prefillRows} rows`, async () => {
      assert.deepEqual(await bitsFor(fixture, prefillRows), expected);
    });
  }

  for (const threads of [1, 3]) {
    it(`a model's logits with ${threads} threads are the same to the bit as with the default`, async () => {
      assert.deepEqual(await bitsFor(fixture, 64, { threads }), expected);
    });
  }

  it('for a token that was prefilled or decoded', async () => {
    const model = await openResidentModel(fixture);
    const [logits] = await logitBits(model, [...PROMPT, ...FURTHER], [], 64);
    model.dispose();
    assert.deepEqual(logits, expected.at(-1));
  });

  for (const name of instructionSets()) {
    it(`with the instruction set ${name}`, async () => {
      const instructionSet = name as DeviceOptions['instructionSet'];
      assert.deepEqual(await bitsFor(fixture, 64, { instructionSet }), expected);
    });
  }
});

describe('the stored type of a checkpoint changes no bit:', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-dtype-'));
  });
  afterEach(async () => {
    await rm(directory, { recursive: true, force: true });
  });

  it('BF16 values shipped as FP32 give the same bits', async () => {
    await writeCheckpoint(directory, 'float32', bf16ToFp32);
    assert.deepEqual(await bitsFor(directory, 64), await bitsFor(fixture, 64));
  });

  it('FP16 values shipped as FP16 and as FP32 give the same bits', async () => {
    const asHalf = join(directory, 'half');
    const asFloat = join(directory, 'float');
    await writeCheckpoint(asHalf, 'float16', (bits) => halfOf(bf16ToFp32(bits)));
    await writeCheckpoint(asFloat, 'float32', (bits) => floatOfHalf(halfOf(bf16ToFp32(bits))));
    assert.deepEqual(await bitsFor(asHalf, 64), await bitsFor(asFloat, 64));
  });
});

/** FP32 bits of BF16 bits. */
function bf16ToFp32(bits: number): number {
  return (bits << 16) >>> 0;
}

/** FP16 bits of FP32 bits whose value is in FP16's normal range, cut (not rounded); smaller values become zero. */
function halfOf(bits: number): number {
  const exponent = ((bits >>> 23) & 0xff) - 127;
  const sign = (bits >>> 16) & 0x8000;
  return exponent < -14 ? sign : sign | ((exponent + 15) << 10) | ((bits >>> 13) & 0x3ff);
}

/** FP32 bits of FP16 bits that are normal or zero. */
function floatOfHalf(bits: number): number {
  const sign = (bits & 0x8000) << 16;
  const exponent = (bits >>> 10) & 0x1f;
  return (exponent === 0 ? sign : sign | ((exponent + 112) << 23) | ((bits & 0x3ff) << 13)) >>> 0;
}

/** The Mixtral fixture with every value's bits mapped to another type. */
async function writeCheckpoint(
  directory: string,
  dtype: 'float16' | 'float32',
  convert: (bf16Bits: number) => number,
): Promise<void> {
  await cp(fixture, directory, { recursive: true });
  const config = JSON.parse(await readFile(join(fixture, 'config.json'), 'utf8')) as object;
  await writeFile(join(directory, 'config.json'), JSON.stringify({ ...config, dtype }));
  const file = await readFile(join(fixture, 'model.safetensors'));
  const headerBytes = Number(file.readBigUInt64LE(0));
  type Header = Record<string, { dtype: string; data_offsets: [number, number] }>;
  const header = JSON.parse(file.subarray(8, 8 + headerBytes).toString('utf8')) as Header;
  const factor = dtype === 'float16' ? 1 : 2;
  for (const [name, tensor] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    tensor.dtype = dtype === 'float16' ? 'F16' : 'F32';
    tensor.data_offsets = [tensor.data_offsets[0] * factor, tensor.data_offsets[1] * factor];
  }
  const values = file.subarray(8 + headerBytes);
  const converted = Buffer.alloc(values.length * factor);
  for (let at = 0; at < values.length; at += 2) {
    if (dtype === 'float16') converted.writeUInt16LE(convert(values.readUInt16LE(at)), at);
    else converted.writeUInt32LE(convert(values.readUInt16LE(at)), at * 2);
  }
  const text = Buffer.from(JSON.stringify(header).padEnd(headerBytes));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  await writeFile(join(directory, 'model.safetensors'), Buffer.concat([length, text, converted]));
}
