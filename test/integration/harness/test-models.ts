import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { realDevices } from '../../../engine/environment/node-environment.js';
import { LocalEngine } from '../../../engine/generation/local-engine.js';
import { DEFAULT_CODEC, DEFAULT_SHARDS, packCheckpoint } from '../../../packs/packing/pack-checkpoint.js';
import { NATIVE_PACKING_TOOLS } from '../../../packs/packing/native-tools.js';
import { addSlices, addThresholds } from '../../../packs/slices/add-slices.js';
import { NATIVE_SLICING_TOOLS } from '../../../packs/slices/native-slicing-tools.js';
import type { MeasuredTheta } from '../../../shared/decisions/slices/plan-readings.js';
import type { Quality } from '../../../shared/settings/quality.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { codecSetting, type PackCodec } from '../../../packs/format/pack-codec.js';

/** demo: the trained model that ships with odmoe. tiny: a random model, which runs faster. */
const CHECKPOINTS = { demo: 'models/demo', tiny: 'test/fixtures/mixtral' } as const;
/** A name of CHECKPOINTS, or the fixture of a family, by its folder in test/fixtures. */
export type TestModel = keyof typeof CHECKPOINTS | `fixtures/${string}`;

/** The folder of a checkpoint, or the path of its (first) GGUF file. */
export function modelPath(model: TestModel): string {
  const folder = fixtureFolder(model);
  const [gguf] = readdirSync(folder)
    .filter((name) => name.endsWith('.gguf'))
    .sort();
  return gguf === undefined ? folder : join(folder, gguf);
}

export function fixtureFolder(model: TestModel): string {
  const known = model in CHECKPOINTS ? CHECKPOINTS[model as keyof typeof CHECKPOINTS] : `test/${model}`;
  return join(packageRoot(), known);
}

/** A file that must be refused. */
const REFUSED_FORMATS: ReadonlySet<string> = new Set(['gguf-qwen3moe-bigendian']);

/** Every checkpoint and GGUF file of test/fixtures/formats that is read. */
export function formatFixtures(): `fixtures/formats/${string}`[] {
  const names = readdirSync(join(packageRoot(), 'test', 'fixtures', 'formats'));
  return names
    .filter((name) => !REFUSED_FORMATS.has(name))
    .sort()
    .map((name) => `fixtures/formats/${name}` as const);
}

/** Every checkpoint of test/fixtures that has a reference. */
export function familyFixtures(): `fixtures/${string}`[] {
  const folder = join(packageRoot(), 'test', 'fixtures');
  const names = readdirSync(folder).filter((name) => existsSync(join(folder, name, 'reference.json')));
  return names.sort().map((name) => `fixtures/${name}` as const);
}

const packs = new Map<string, Promise<string>>();
const directories: string[] = [];
process.once('exit', () => {
  for (const directory of directories) rmSync(directory, { recursive: true, force: true });
});

/** Directory of the model's pack. It is made once in a test process and removed at the end of the process. */
export function packOf(model: TestModel, codec: PackCodec = DEFAULT_CODEC.codec): Promise<string> {
  const key = `${model} ${codec}`;
  let pack = packs.get(key);
  if (pack === undefined) {
    pack = makePack(model, codec);
    packs.set(key, pack);
  }
  return pack;
}

async function makePack(model: TestModel, codec: PackCodec): Promise<string> {
  const directory = join(temporaryDirectory(), basename(model));
  await packInto(directory, modelPath(model), codec);
  return directory;
}

function temporaryDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'odmoe-test-'));
  directories.push(directory);
  return directory;
}

async function packInto(directory: string, checkpoint: string, codec: PackCodec): Promise<void> {
  const options = {
    codec: codecSetting(codec, null),
    shards: DEFAULT_SHARDS,
    name: null,
    onDamagedPack: 'replace',
  } as const;
  await packCheckpoint(checkpoint, directory, options, NATIVE_PACKING_TOOLS);
}

/**
 * Directory of a pack of the model with another size of the context, removed at the end of the process. Agents' prompts need more than the small
 * models have.
 */
export async function longPackOf(model: TestModel, contextPositions: number): Promise<string> {
  const parent = temporaryDirectory();
  const checkpoint = join(parent, basename(model));
  cpSync(modelPath(model), checkpoint, { recursive: true });
  const path = join(checkpoint, 'config.json');
  const config = JSON.parse(readFileSync(path, 'utf8')) as object;
  writeFileSync(path, JSON.stringify({ ...config, max_position_embeddings: contextPositions }));
  const directory = join(parent, 'pack');
  await packInto(directory, checkpoint, DEFAULT_CODEC.codec);
  return directory;
}

/** Directory of a pack of the model with slices (8,4) and these thresholds, removed at the end of the process. */
export async function slicedPackOf(model: TestModel, theta: readonly MeasuredTheta[]): Promise<string> {
  const directory = await makePack(model, DEFAULT_CODEC.codec);
  await addSlices(directory, 'sliced84', {}, NATIVE_SLICING_TOOLS);
  await addThresholds(directory, theta);
  return directory;
}

/** The single-process engine with the model. Every cluster must give the same answers. */
export async function openReference(model: TestModel, prefillRows = 256): Promise<LocalEngine> {
  return openReferenceOf(await packOf(model), { kind: 'exact' }, prefillRows);
}

/** The single-process engine with a pack. */
export async function openReferenceOf(directory: string, quality: Quality, prefillRows = 256): Promise<LocalEngine> {
  return LocalEngine.open(directory, {
    device: { backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 },
    emulation: null,
    resident: null,
    shadow: null,
    quality,
    prefillRows,
    chooseSeed: () => 0,
    environment: realDevices(),
    onProgress: null,
  });
}
