import assert from 'node:assert/strict';
import fc from 'fast-check';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { ConfigReader } from '../../packs/model-config/config-reader.js';
import { type ReadRope, readRope, type RopeDefaults } from '../../packs/model-config/rope-config.js';
import { ropeShape, type RopeScaling } from '../../packs/model-config/rope-frequencies.js';

const DEFAULTS: RopeDefaults = { theta: 10_000, headDim: 32 };

function read(config: Record<string, unknown>, defaults = DEFAULTS, longContext = false): ReadRope {
  const values = { max_position_embeddings: 512, ...config };
  return readRope(new ConfigReader(values, { path: 'config.json', longContext, quantization: 'none' }), defaults);
}

function plain(theta: number, dimensions: number): number[] {
  return Array.from({ length: dimensions / 2 }, (_, pair) => theta ** ((-2 * pair) / dimensions));
}

/** Equal but for the last bit of FP32: Math's functions may differ from machine to machine. */
function assertClose(found: readonly number[], expected: readonly number[]): void {
  assert.equal(found.length, expected.length);
  for (const [pair, value] of expected.entries()) {
    const difference = Math.abs((found[pair] ?? NaN) - value);
    assert.ok(difference <= Math.abs(value) * 2 ** -23, `pair ${pair}: ${found[pair]}, expected ${value}`);
  }
}

describe('rope frequencies', () => {
  it('have the recorded bits', () => {
    const bits = (theta: number, dimensions: number): number[] => {
      const { frequencies } = ropeShape(theta, dimensions, { type: 'default' });
      const all = new Uint32Array(Float32Array.from(frequencies).buffer);
      return [1, Math.floor(dimensions / 4), dimensions / 2 - 1].map((pair) => all[pair] ?? 0);
    };
    assert.deepEqual(bits(1e6, 128), [0x3f4e4bac, 0x3a83126f, 0x35a68e4c]);
    assert.deepEqual(bits(1e6, 16), [0x3e361887, 0x3a83126f, 0x36bcb0c1]);
    assert.deepEqual(bits(10_000, 64), [0x3f3ff911, 0x3c23d70a, 0x390bd472]);
    assert.deepEqual(bits(150_000, 64), [0x3f306535, 0x3b293696, 0x372252d3]);
  });

  it('are theta^(-2 i / d), in FP32', () => {
    fc.assert(
      fc.property(fc.double({ min: 1.5, max: 1e8, noNaN: true }), fc.integer({ min: 1, max: 128 }), (theta, pairs) => {
        const { frequencies, scale } = ropeShape(theta, 2 * pairs, { type: 'default' });
        assert.equal(scale, 1);
        assert.ok(frequencies.every((frequency) => Math.fround(frequency) === frequency));
        assertClose(frequencies, plain(theta, 2 * pairs));
      }),
    );
  });

  it('are divided by the factor (linear), and made for a larger theta (alpha)', () => {
    const linear = ropeShape(10_000, 32, { type: 'linear', factor: 4 });
    assertClose(
      linear.frequencies,
      plain(10_000, 32).map((frequency) => frequency / 4),
    );
    const alpha = ropeShape(10_000, 32, { type: 'alpha', alpha: 1000 });
    assertClose(alpha.frequencies, plain(10_000 * 1000 ** (32 / 30), 32));
  });

  it('follow YaRN: fast pairs stay, slow ones are interpolated, a ramp between', () => {
    const yarn: RopeScaling = {
      type: 'yarn',
      factor: 8,
      betaFast: 32,
      betaSlow: 1,
      originalPositions: 4096,
      truncate: true,
      scale: 1.25,
    };
    const { frequencies, scale } = ropeShape(10_000, 64, yarn);
    assert.equal(scale, 1.25);
    // 4096 positions turn the pair of dimension d by 4096 theta^(-2 d / 64) / (2 pi): 32 times at d = 10.4, once at d = 22.5.
    const [low, high] = [10, 23];
    assertClose(
      frequencies,
      plain(10_000, 64).map((frequency, pair) => {
        const share = Math.min(Math.max((pair - low) / (high - low), 0), 1);
        return (frequency * share) / 8 + frequency * (1 - share);
      }),
    );
    const smooth = ropeShape(10_000, 64, { ...yarn, truncate: false }).frequencies;
    assert.notEqual(smooth[15], frequencies[15]);
    assert.equal(smooth[2], frequencies[2]);
  });

  it('follow Llama 3: by the length of the wave', () => {
    const llama3: RopeScaling = {
      type: 'llama3',
      factor: 8,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
      originalPositions: 8192,
    };
    assertClose(
      ropeShape(500_000, 128, llama3).frequencies,
      plain(500_000, 128).map((frequency) => {
        const wave = (2 * Math.PI) / frequency;
        if (wave < 8192 / 4) return frequency;
        if (wave > 8192) return frequency / 8;
        const smooth = (8192 / wave - 1) / 3;
        return ((1 - smooth) * frequency) / 8 + smooth * frequency;
      }),
    );
  });

  it('are 0 for pairs that are not rotated (proportional), of a whole head', () => {
    const { frequencies } = ropeShape(1e6, 32, { type: 'proportional', pairs: 4, factor: 1 });
    assertClose(frequencies.slice(0, 4), plain(1e6, 32).slice(0, 4));
    assert.deepEqual(frequencies.slice(4), new Array<number>(12).fill(0));
  });
});

describe('the rope of a config.json', () => {
  it('is the same in the older form and in the newer one', () => {
    const yarn = { factor: 8, beta_fast: 32, beta_slow: 1, original_max_position_embeddings: 64 };
    const older = read({ rope_theta: 5000, rope_scaling: { type: 'yarn', ...yarn }, partial_rotary_factor: 0.5 });
    const newer = read({
      rope_parameters: { rope_type: 'yarn', rope_theta: 5000, partial_rotary_factor: 0.5, ...yarn },
    });
    assert.deepEqual(older, newer);
    assert.equal(older.rope.frequencies.length, 8);
    assert.equal(older.rope.scale, Math.fround(0.1 * Math.log(8) + 1));
  });

  it('takes the scale of cosine and sine, and of scores, from the mscales', () => {
    const yarn = { type: 'yarn', factor: 40, original_max_position_embeddings: 64, mscale: 1, mscale_all_dim: 0.5 };
    const { rope, mscaleAllDim } = read({ rope_scaling: yarn });
    const [all, half] = [0.1 * Math.log(40) + 1, 0.05 * Math.log(40) + 1];
    assert.ok(Math.abs(rope.scale - all / half) < 1e-6);
    assert.ok(Math.abs(mscaleAllDim - half) < 1e-12);
    assert.equal(read({ rope_scaling: { ...yarn, attention_factor: 3 } }).rope.scale, 3);
  });

  it('fixes one set of long-rope factors: the short ones, up to the original length, or the long ones on request', () => {
    const factors = (factor: number): number[] => new Array<number>(16).fill(factor);
    const rope_scaling = {
      type: 'longrope',
      short_factor: factors(2),
      long_factor: factors(4),
      short_mscale: 1.25,
      long_mscale: 1.5,
      original_max_position_embeddings: 128,
    };
    const short = read({ rope_scaling });
    assert.deepEqual([short.rope.frequencies[0], short.rope.scale, short.maxPositions], [0.5, 1.25, 128]);
    const long = read({ rope_scaling }, DEFAULTS, true);
    assert.deepEqual([long.rope.frequencies[0], long.rope.scale, long.maxPositions], [0.25, 1.5, 512]);
    const unscaled = read({ rope_scaling: { ...rope_scaling, short_mscale: null } }).rope.scale;
    assert.ok(Math.abs(unscaled - Math.sqrt(1 + Math.log(4) / Math.log(128))) < 1e-6);
  });

  it('ends the context where dynamic frequencies would begin to change', () => {
    const rope_scaling = { type: 'dynamic', factor: 4, original_max_position_embeddings: 128 };
    assert.equal(read({ rope_scaling }).maxPositions, 128);
    const fixed = read({ rope_scaling: { type: 'dynamic', alpha: 1000 } });
    assert.equal(fixed.maxPositions, 512);
    assertClose(fixed.rope.frequencies, plain(10_000 * 1000 ** (32 / 30), 32));
  });

  it("takes the family's own values by default", () => {
    assert.deepEqual(read({}).rope, ropeShape(10_000, 32, { type: 'default' }));
    assert.equal(read({}, { ...DEFAULTS, partialFactor: 0.25 }).rope.frequencies.length, 4);
    assert.equal(read({}, { ...DEFAULTS, rotaryDim: 12 }).rope.frequencies.length, 6);
    const parameters = { rope_type: 'proportional', partial_rotary_factor: 0.25 };
    const { frequencies } = read({}, { ...DEFAULTS, parameters }).rope;
    assert.equal(frequencies.filter((frequency) => frequency > 0).length, 4);
    assert.ok(read({ rope_parameters: {} }, { ...DEFAULTS, parameters }).rope.frequencies.every((value) => value > 0));
  });

  const refuses = (config: Record<string, unknown>, code: string, message: RegExp): void => {
    assert.throws(
      () => read(config),
      (thrown: unknown) => thrown instanceof OdmoeError && thrown.code === code && message.test(thrown.message),
      JSON.stringify(config),
    );
  };

  it('needs the numbers of its type: no other number replaces a missing one', () => {
    const factors = new Array<number>(16).fill(2);
    const whole: Record<string, Record<string, unknown>> = {
      linear: { factor: 4 },
      dynamic: { factor: 4 },
      yarn: { factor: 4 },
      llama3: { factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      longrope: { short_factor: factors, long_factor: factors },
    };
    for (const [type, numbers] of Object.entries(whole)) {
      for (const form of ['rope_scaling', 'rope_parameters']) {
        for (const name of ['type', 'rope_type']) {
          read({ [form]: { [name]: type, ...numbers } });
          for (const key of Object.keys(numbers)) {
            const without = { [name]: type, ...numbers, [key]: undefined };
            refuses({ [form]: without }, 'MODEL_CORRUPT', new RegExp(`${key}.*(missing|factors)`));
          }
        }
      }
    }
    // YaRN without a number: by how much the context is longer.
    const yarn = { type: 'yarn', original_max_position_embeddings: 128 };
    assert.deepEqual(read({ rope_scaling: { ...yarn, factor: null } }), read({ rope_scaling: { ...yarn, factor: 4 } }));
  });

  it('takes no ropes by kind of layer where there is one rope, and every kind where there are several', () => {
    const rope = { rope_type: 'default', rope_theta: 5000 };
    for (const form of ['rope_scaling', 'rope_parameters']) {
      for (const kind of ['full_attention', 'sliding_attention', 'main', 'compress']) {
        const message = new RegExp(`${form}\\.${kind} is .*5000.*one rope for all layers`);
        refuses({ [form]: { [kind]: rope } }, 'MODEL_UNSUPPORTED', message);
        refuses({ [form]: { ...rope, [kind]: rope } }, 'MODEL_UNSUPPORTED', message);
      }
    }
    const several = { max_position_embeddings: 512, rope_parameters: { full_attention: rope } };
    const context = { path: 'config.json', longContext: false, quantization: 'none' } as const;
    const ofKind = (kind: string): ReadRope => readRope(new ConfigReader(several, context), DEFAULTS, kind);
    assert.deepEqual(ofKind('full_attention').rope, ropeShape(5000, 32, { type: 'default' }));
    assert.throws(() => ofKind('sliding_attention'), /rope_parameters\.sliding_attention is missing/);
  });

  it('is refused for two different values of one setting', () => {
    const yarn = { factor: 8, original_max_position_embeddings: 64 };
    const twice: Record<string, unknown>[] = [
      { rope_theta: 5000, rope_parameters: { rope_type: 'default', rope_theta: 6000 } },
      { partial_rotary_factor: 0.5, rope_parameters: { rope_type: 'default', partial_rotary_factor: 0.25 } },
      { original_max_position_embeddings: 32, rope_scaling: { type: 'yarn', ...yarn } },
      { rope_scaling: { type: 'yarn', ...yarn }, rope_parameters: { rope_type: 'yarn', ...yarn, factor: 4 } },
      { rope_scaling: { type: 'linear', rope_type: 'yarn', ...yarn } },
    ];
    for (const config of twice) refuses(config, 'MODEL_CORRUPT', /must agree/);
    const both = { type: 'mrope', rope_type: 'default', mrope_section: [8, 4, 4] };
    assert.deepEqual(read({ rope_scaling: both }).rope, read({}).rope);
  });

  it('is refused for unsupported and contradictory values', () => {
    refuses({ rope_scaling: { type: 'spiral' } }, 'MODEL_UNSUPPORTED', /rope_scaling\.rope_type is "spiral"/);
    refuses({ rope_theta: 0 }, 'MODEL_CORRUPT', /rope_theta is 0/);
    refuses({ rope_theta: 'big' }, 'MODEL_CORRUPT', /rope_theta is "big"/);
    refuses({ partial_rotary_factor: 2 }, 'MODEL_CORRUPT', /partial_rotary_factor/);
    refuses({ partial_rotary_factor: 0.01 }, 'MODEL_CORRUPT', /odd or none/);
    refuses({ rope_scaling: { type: 'linear', factor: -1 } }, 'MODEL_CORRUPT', /factor is -1/);
    refuses({ rope_scaling: { type: 'longrope', short_factor: [1, 2] } }, 'MODEL_CORRUPT', /short_factor.*16/);
    refuses({ rope_scaling: [] }, 'MODEL_CORRUPT', /rope_scaling is \[\]/);
  });
});
