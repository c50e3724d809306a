/** Weights resident as fixed4: the same tokens and logits as from the shipped BF16, to the bit. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { fasterWeightForm } from '../../engine/loading/choose-weight-form.js';
import { instructionSets, type DeviceOptions } from '../../native/index.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { GenerateRequest, TokenReply } from '../../shared/wire/messages.js';
import { tinyTensors, TINY_CONFIG, writeTinyCheckpoint } from '../unit/tiny-checkpoint.js';
import { logitBits, openResidentModel } from './generate-resident-model.js';

const fixture = join(packageRoot(), 'test', 'fixtures', 'mixtral');
const demoModel = join(packageRoot(), 'models', 'demo');
const PROMPT = Array.from({ length: 40 }, (_, n) => (n * 37 + 11) % 300);
const FURTHER = [5, 17, 290, 0, 123];

async function bitsFor(
  directory: string,
  resident: 'fixed4' | null,
  prefillRows: number,
  device: Partial<DeviceOptions> = {},
): Promise<Uint32Array[]> {
  const model = await openResidentModel(directory, device, resident);
  try {
    return await logitBits(model, PROMPT, FURTHER, prefillRows);
  } finally {
    model.dispose();
  }
}

async function tokensOf(resident: 'fixed4' | 'auto' | null, text: string): Promise<TokenReply[]> {
  const engine = await LocalEngine.open(demoModel, {
    device: { backend: 'cpu', instructionSet: 'auto', threads: 2, budgetBytes: 0 },
    emulation: null,
    resident,
    shadow: null,
    prefillRows: 64,
    chooseSeed: () => 0,
    environment: realDevices(),
    onProgress: null,
  });
  const request: GenerateRequest = {
    text,
    messages: [],
    promptTokenIds: [],
    raw: false,
    sampling: null,
    stop: [],
    ignoreEos: true,
    maxTokens: 48,
    logprobs: 5,
  };
  try {
    const tokens: TokenReply[] = [];
    for await (const reply of engine.generate(request, new AbortController().signal)) {
      if (reply.kind === 'token') tokens.push(reply.token);
    }
    const { weightFormChoice: residentChoice } = engine;
    assert.equal(residentChoice !== null, resident === 'auto');
    if (residentChoice !== null) {
      assert.equal(residentChoice.format, fasterWeightForm(residentChoice.fixed4Speedup ?? 0));
      const forms = engine.residentWeights().kinds.map(({ format }) => format);
      assert.equal(forms.includes('fixed4'), residentChoice.format === 'fixed4');
    }
    return tokens;
  } finally {
    engine.dispose();
  }
}

describe('weights resident as fixed4', () => {
  let expected: Uint32Array[];
  before(async () => {
    expected = await bitsFor(fixture, null, 64);
  });

  for (const prefillRows of [1, 2, 3, 5, 6, 13, 40]) {
    it(`give the logits of BF16 with a prompt in passes of ${prefillRows} rows`, async () => {
      assert.deepEqual(await bitsFor(fixture, 'fixed4', prefillRows), expected);
    });
  }

  for (const name of instructionSets()) {
    it(`give the logits of BF16 with the instruction set ${name}`, async () => {
      const instructionSet = name as DeviceOptions['instructionSet'];
      assert.deepEqual(await bitsFor(fixture, 'fixed4', 16, { instructionSet }), expected);
    });
  }

  it('give the same tokens and log-probabilities of the demo model', async () => {
    const text = 'Tell me a story about a fox.';
    assert.deepEqual(await tokensOf('fixed4', text), await tokensOf(null, text));
  });

  it('are used by resident auto where they are faster, and change no token', async () => {
    const text = 'What is 17 plus 25?';
    assert.deepEqual(await tokensOf('auto', text), await tokensOf(null, text));
    assert.deepEqual([0.9, 1.04, 1.05, 1.3].map(fasterWeightForm), ['bf16', 'bf16', 'fixed4', 'fixed4']);
  });

  it('take three quarters of the bytes', async () => {
    const [shipped, fixed4] = [await openResidentModel(demoModel), await openResidentModel(demoModel, {}, 'fixed4')];
    shipped.dispose();
    fixed4.dispose();
    const bytes = (weights: typeof shipped.weights, format: string): number =>
      weights.kinds.find((kind) => kind.format === format)?.bytes ?? 0;
    assert.deepEqual(
      shipped.weights.kinds.map(({ format }) => format),
      ['bf16'],
    );
    assert.equal(fixed4.weights.fellBack, 0);
    const ratio = bytes(fixed4.weights, 'fixed4') / (bytes(shipped.weights, 'bf16') - bytes(fixed4.weights, 'bf16'));
    assert.ok(ratio > 0.75 && ratio < 0.9, `${ratio} of the bytes`);
  });
});

describe('weights that fixed4 cannot hold', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-resident-'));
  });
  afterEach(async () => {
    await rm(directory, { recursive: true, force: true });
  });

  for (const dtype of ['F16', 'F32'] as const) {
    it(`${dtype} weights stay as shipped, because fixed4 cannot hold them`, async () => {
      // Matrices of any bits, and norms of zeros: those must be numbers.
      const tensors = tinyTensors(TINY_CONFIG, () => dtype).map((tensor) =>
        tensor.shape.length === 1 ? { ...tensor, data: new Uint8Array(tensor.data.length) } : tensor,
      );
      await writeTinyCheckpoint(directory, tensors, { config: TINY_CONFIG });
      const model = await openResidentModel(directory, {}, 'fixed4');
      model.dispose();
      const exact = dtype === 'F16' ? 'fp16' : 'fp32';
      assert.deepEqual(
        model.weights.kinds.map(({ format }) => format),
        [exact],
      );
      assert.ok(model.weights.fellBack > 0);
      await assert.rejects(
        LocalEngine.open(directory, {
          device: { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 },
          emulation: null,
          resident: 'bf16',
          shadow: null,
          prefillRows: 8,
          chooseSeed: () => 0,
          environment: realDevices(),
          onProgress: null,
        }),
        (error) => error instanceof OdmoeError && error.code === 'USAGE' && /would round/.test(error.message),
      );
    });
  }
});
