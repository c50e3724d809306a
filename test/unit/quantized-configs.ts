/** quantization_config objects, as published files have them and damaged from a seed. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import type { WeightScheme } from '../../packs/model-config/weight-scheme.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export function configOf(fixture: string): Record<string, Json> {
  const path = join(packageRoot(), 'test', 'fixtures', 'formats', fixture, 'config.json');
  return JSON.parse(readFileSync(path, 'utf8')) as Record<string, Json>;
}

/** The schemes that a config.json names. */
export function schemesOf(quantization: Json): readonly WeightScheme[] {
  const config = { ...configOf('qwen3moe-awq'), quantization_config: quantization };
  return parseModelConfig(config, 'config.json').config.schemes ?? [];
}

const FIXTURES = [
  'dsv3-int4-asym-g128',
  'dsv3-int4-k25',
  'dsv3-nvfp4-modelopt',
  'qwen3moe-gptq',
  'qwen3moe-awq',
  'qwen3moe-fp8-block-bf16',
  'minimaxm2-mxfp4-ct',
].map(configOf);

const ODD_VALUES: readonly Json[] = [
  null,
  true,
  -1,
  0,
  3,
  1e308,
  'group',
  '',
  'x'.repeat(10_000),
  [],
  {},
  [[[[]]]],
  { config_groups: { group_0: { weights: { num_bits: 4 } } } },
  Array.from({ length: 2000 }, () => 128),
];

/** A copy with a value at a random place replaced, doubled under another name, or taken away. */
function mutated(value: Json, random: SeededRandom, depth = 0): Json {
  const odd = ODD_VALUES[random.int(ODD_VALUES.length)] ?? null;
  if (value === null || typeof value !== 'object' || random.int(6) === 0) return odd;
  if (Array.isArray(value)) {
    const at = random.int(value.length + 1);
    return [
      ...value.slice(0, at),
      depth < 6 ? mutated(value[at] ?? null, random, depth + 1) : odd,
      ...value.slice(at + 1),
    ];
  }
  const names = Object.keys(value);
  const name = names[random.int(Math.max(1, names.length))] ?? 'group_0';
  const { [name]: chosen = null, ...others } = value;
  switch (random.int(8)) {
    case 0:
      return others;
    case 1:
      return { ...value, [`${name}_2`]: chosen };
    default:
      return { ...others, [name]: mutated(chosen, random, depth + 1) };
  }
}

/** Reads so many damaged configs; gives the number of those that were accepted. Each other one must be refused in our words. */
export function readMutatedConfigs(count: number, random: SeededRandom): number {
  let accepted = 0;
  for (let i = 0; i < count; i += 1) {
    const config = FIXTURES[random.int(FIXTURES.length)] ?? {};
    const changed = { ...config };
    for (const holder of [changed, changed['text_config'] as Record<string, Json> | undefined]) {
      const quantization = holder?.['quantization_config'];
      if (holder === undefined || quantization === undefined) continue;
      let damaged: Json = quantization;
      for (let times = 0; times <= random.int(3); times += 1) damaged = mutated(damaged, random);
      changed['quantization_config'] = damaged;
    }
    try {
      parseModelConfig(changed, 'config.json');
      accepted += 1;
    } catch (thrown) {
      assert.ok(thrown instanceof OdmoeError, String(thrown));
      assert.match(thrown.code, /^MODEL_(CORRUPT|UNSUPPORTED)$/, thrown.message);
      assert.ok(thrown.message.length < 4000, `a message of ${thrown.message.length} characters`);
    }
  }
  return accepted;
}
