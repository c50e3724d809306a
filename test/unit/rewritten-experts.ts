import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { readSafetensorsFile } from '../../packs/checkpoint/safetensors-file.js';
import type { TinyTensor } from './tiny-checkpoint.js';

export type Config = Record<string, unknown>;

function fixtureFile(name: string, file: string): string {
  return join(packageRoot(), 'test', 'fixtures', name, file);
}

export function configOfFixture(name: string): Config {
  return JSON.parse(readFileSync(fixtureFile(name, 'config.json'), 'utf8')) as Config;
}

/** All tensors of a fixture of one file. */
export async function tensorsOfFixture(name: string): Promise<TinyTensor[]> {
  const path = fixtureFile(name, 'model.safetensors');
  const bytes = readFileSync(path);
  const { tensors } = await readSafetensorsFile(path);
  return [...tensors.values()].map(({ name: tensor, dtype, shape, offsetBytes, sizeBytes }) => {
    return { name: tensor, dtype, shape, data: bytes.subarray(offsetBytes, offsetBytes + sizeBytes) };
  });
}

/** Experts of three matrices each, as two tensors a layer; `parts`: how gate, up and down are called. */
export function fuseExperts(
  tensors: readonly TinyTensor[],
  { folder, into, parts }: { folder: string; into: string; parts: readonly [string, string, string] },
): TinyTensor[] {
  const pattern = new RegExp(`^(.*layers\\.\\d+\\.)${folder}\\.(\\d+)\\.(${parts.join('|')})\\.weight$`);
  const rest = tensors.filter(({ name }) => !pattern.test(name));
  const layers = new Map<string, TinyTensor[]>();
  for (const tensor of tensors) {
    const [, layer] = pattern.exec(tensor.name) ?? [];
    if (layer !== undefined) layers.set(layer, [...(layers.get(layer) ?? []), tensor]);
  }
  const fused = [...layers].flatMap(([layer, own]) => {
    const matrix = (expert: number, part: string): TinyTensor => {
      const found = own.find(({ name }) => name === `${layer}${folder}.${expert}.${part}.weight`);
      if (found === undefined) throw new Error(`no ${part} of expert ${expert} in ${layer}`);
      return found;
    };
    const experts = Array.from({ length: own.length / parts.length }, (_, expert) => expert);
    const [gate, up, down] = parts;
    const { dtype, shape } = matrix(0, gate);
    const [rows = 0, columns = 0] = shape;
    const together = experts.flatMap((expert) => [matrix(expert, gate).data, matrix(expert, up).data]);
    return [
      {
        name: `${layer}${into}.gate_up_proj`,
        dtype,
        shape: [experts.length, 2 * rows, columns],
        data: Buffer.concat(together),
      },
      {
        name: `${layer}${into}.down_proj`,
        dtype,
        shape: [experts.length, columns, rows],
        data: Buffer.concat(experts.map((expert) => matrix(expert, down).data)),
      },
    ];
  });
  return [...rest, ...fused];
}

/** Experts of two tensors a layer, as three matrices each. */
export function separateExperts(tensors: readonly TinyTensor[], folder: string): TinyTensor[] {
  return tensors.flatMap((tensor) => {
    const { name, dtype, shape, data } = tensor;
    const [, before, part] = new RegExp(`^(.*layers\\.\\d+\\.${folder})\\.(gate_up_proj|down_proj)$`).exec(name) ?? [];
    if (before === undefined) return [tensor];
    const [experts = 0, rows = 0, columns = 0] = shape;
    const parts = part === 'down_proj' ? ['down_proj'] : ['gate_proj', 'up_proj'];
    const bytes = data.length / experts / parts.length;
    return Array.from({ length: experts * parts.length }, (_, index) => ({
      name: `${before}.${Math.floor(index / parts.length)}.${parts[index % parts.length] ?? ''}.weight`,
      dtype,
      shape: [rows / parts.length, columns],
      data: data.subarray(index * bytes, (index + 1) * bytes),
    }));
  });
}

function renamed(tensors: readonly TinyTensor[], from: string, to: string): TinyTensor[] {
  return tensors.map((tensor) => ({ ...tensor, name: tensor.name.replace(from, to) }));
}

const PROJECTIONS = ['gate_proj', 'up_proj', 'down_proj'] as const;
const NUMBERED = ['w1', 'w3', 'w2'] as const;

/** Fixtures with their experts in another form than the one in which they are shipped. */
export const REWRITTEN: readonly {
  fixture: string;
  form: string;
  rewrite: (tensors: readonly TinyTensor[]) => TinyTensor[];
}[] = [
  {
    fixture: 'mixtral',
    form: 'fused under mlp, as transformers 5 keeps it',
    rewrite: (tensors) =>
      renamed(
        fuseExperts(tensors, { folder: 'block_sparse_moe.experts', into: 'mlp.experts', parts: NUMBERED }),
        'block_sparse_moe.gate',
        'mlp.gate',
      ),
  },
  {
    fixture: 'mixtral',
    form: 'fused under block_sparse_moe',
    rewrite: (tensors) => {
      const folder = 'block_sparse_moe.experts';
      return fuseExperts(tensors, { folder, into: folder, parts: NUMBERED });
    },
  },
  { fixture: 'qwen35moe', form: 'separate', rewrite: (tensors) => separateExperts(tensors, 'mlp.experts') },
  ...['qwen3moe', 'qwen2moe', 'deepseekv3', 'glm45', 'ernie45moe'].map((fixture) => ({
    fixture,
    form: 'fused',
    rewrite: (tensors: readonly TinyTensor[]) =>
      fuseExperts(tensors, { folder: 'mlp.experts', into: 'mlp.experts', parts: PROJECTIONS }),
  })),
];
