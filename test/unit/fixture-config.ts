/** The config.json of a fixture, with changes, and what is read from it. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseModelConfig } from '../../packs/checkpoint/model-config.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { ModelConfig } from '../../packs/model-config/model-family.js';
import type { AttentionMixer, LayerShape, ModelShape } from '../../shared/model/model-shape.js';

export type Config = Record<string, unknown>;

export function configOf(name: string): Config {
  const path = join(packageRoot(), 'test', 'fixtures', name, 'config.json');
  return JSON.parse(readFileSync(path, 'utf8')) as Config;
}

export function read(name: string, change: Config = {}): ModelConfig {
  return parseModelConfig({ ...configOf(name), ...change }, 'config.json').config;
}

export function shapeOf(name: string, change: Config = {}): ModelShape {
  return read(name, change).shape;
}

export function attentionOf({ layers }: ModelShape, layer: number): AttentionMixer {
  const mixer = layers[layer]?.mixer;
  assert.ok(mixer?.kind === 'attention', `layer ${layer} is ${mixer?.kind}`);
  return mixer;
}

export function sparseLayers({ layers }: ModelShape): number[] {
  return [...layers.entries()].flatMap(([number, { routed }]: [number, LayerShape]) =>
    routed === null ? [] : [number],
  );
}

export function refuses(name: string, change: Config, code: ErrorCode, message: RegExp): void {
  assert.throws(
    () => read(name, change),
    (thrown: unknown) => {
      assert.ok(thrown instanceof OdmoeError, String(thrown));
      assert.equal(thrown.code, code, thrown.message);
      assert.match(thrown.message, message);
      return true;
    },
    `${name} with ${JSON.stringify(change)}`,
  );
}

export function withoutKeys(config: Config, ...keys: string[]): Config {
  return Object.fromEntries(Object.entries(config).filter(([key]) => !keys.includes(key)));
}
