import type { Command } from 'commander';
import { describeNumbers } from '../../packs/describe-layers.js';
import {
  describeModel,
  type DescribedSlots,
  type FoundPredictor,
  type ModelDescription,
  NO_PREDICTOR,
} from '../../packs/describe-model.js';
import type { PackCompression } from '../../packs/pack-compression.js';
import { allExperts } from '../../shared/model/part-sizes.js';
import { expertShape } from '../../engine/loading/expert-shape.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { NATIVE_BYTE_TOOLS } from '../../packs/packing/native-tools.js';
import { NATIVE_SLICING_TOOLS } from '../../packs/slices/native-slicing-tools.js';
import { damageError, requireUndamaged, verifyPack, type PackDamage } from '../../packs/packing/verify-pack.js';
import { PLAIN_LOADER, openDevice } from '../../native/index.js';
import { createProgressBar } from '../../shared/base/text/progress-bar.js';
import { paddingLine } from '../output/padding-line.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { formatBytes } from '../../shared/base/text/units.js';
import type { ModelSource, SlicedSplit } from '../../shared/model/tensor-source.js';
import { isSlicesOnly } from '../../packs/format/manifest.js';
import { formatLine } from '../output/format-line.js';
import type { ConfigVerdict } from '../../packs/checkpoint/config-verdict.js';
import { readConfigVerdict } from '../../packs/read-config-verdict.js';
import { verdictLines } from '../output/verdict-report.js';
import { openAnyPack, type Pack } from '../../packs/format/open-pack.js';
import { isPackFileName } from '../../packs/format/pack-layout.js';
import { findSlices, NO_SLICES, type Slices } from '../../packs/slices/open-slices.js';
import { verifySlices } from '../../packs/slices/verify-slices.js';
import { predictorSummary } from '../output/predictor-report.js';
import { readPredictor } from '../../packs/predictor/predictor-file.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { type ErrorCode, ERROR_KINDS } from '../../shared/base/errors/registry.js';
import { recallLines } from '../output/measurements-report.js';
import { readShadowRecall } from '../../packs/shadow-recall-file.js';
import { damagedLine, mendingRemedy, slicesLines, unfinishedLine } from '../output/slices-report.js';
import { describeCodec } from '../../packs/format/pack-codec.js';
import { standardOutput } from '../../shared/base/text/text-output.js';
import { printableJson } from '../../shared/base/text/printable-text.js';

interface InspectFlags {
  verify: boolean;
  json: boolean;
}

/** Most lines about skipped tensors; --json lists all of them. */
const LEFT_OUT_NAMED = 8;

/** Faults of a predictor that making it anew repairs. */
const UNUSABLE: ReadonlySet<ErrorCode> = new Set(['PACK_CORRUPT', 'MODEL_UNSUPPORTED']);

/** A slot's own memory does not depend on the rows of an execute, so any number works; only the memory that slots share depends on them. */
const SLOT_ROWS = 1;

/** `odmoe inspect`: shows the contents of a pack or a checkpoint, and whether it is complete. */
export function registerInspectCommand(program: Command): void {
  program
    .command('inspect')
    .description('show what is in a pack (or a checkpoint); --verify checks every checksum')
    .argument('<path>', 'a pack, a Hugging Face checkpoint directory, a GGUF file, or a config.json alone')
    .option('--verify', 'read the whole pack and compare every size and checksum', false)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      `
Of a config.json without weights it says whether odmoe runs the model, without what, or what it lacks for it (then the exit status is 3).
With --verify every damaged file and chunk is named, and the exit status is 3 if there is any.

Examples:
  odmoe inspect /data/mixtral-pack
  odmoe inspect /data/mixtral-pack --verify
  odmoe inspect ~/Downloads/config.json
  odmoe inspect models/demo --json`,
    )
    .action(async (directory: string, flags: InspectFlags) => inspect(directory, flags));
}

async function inspect(directory: string, flags: InspectFlags): Promise<void> {
  const judged = await readConfigVerdict(directory);
  if (judged !== null) return showVerdict(judged, flags);
  const source = await openModelSource(directory, openAnyPack);
  const found = source.kind === 'pack' ? await findSlices(source) : NO_SLICES;
  const { slices } = found;
  const shadowRecall = source.kind === 'pack' ? await readShadowRecall(source) : null;
  const predictor = source.kind === 'pack' ? await findPredictor(source) : NO_PREDICTOR;
  const description = describeModel(source, slotsOf(source), { slices: found, shadowRecall, predictor });
  const damages = flags.verify && source.kind === 'pack' ? await verifyWithProgress(source, slices) : null;
  if (flags.json) standardOutput.write(`${printableJson(snakeCaseKeys({ ...description, damages }))}\n`);
  else standardOutput.write(`${descriptionLines(description, flags.verify, damages).join('\n')}\n`);
  if (source.kind === 'pack' && damages !== null) {
    requireUndamaged(
      source,
      damages.filter(({ file }) => isPackFileName(file)),
    );
    // Verifying names every file of slices that is missing or cut, too.
    if (damages.length > 0 && slices !== null) throw damageError(source.directory, damages, mendingRemedy(slices));
  }
  if (found.damage !== null) throw found.damage;
  if (predictor.damage !== null) throw predictor.damage;
}

/** Exit status 3 for a model that does not run. */
function showVerdict({ path, verdict }: { path: string; verdict: ConfigVerdict }, { json }: InspectFlags): void {
  const lines = json ? [printableJson({ config: path, ...verdict })] : verdictLines(path, verdict);
  standardOutput.write(`${lines.join('\n')}\n`);
  if (verdict.family === null) process.exitCode = ERROR_KINDS.MODEL_UNSUPPORTED.exitStatus;
}

/** A predictor that cannot be used hinders no other description of the pack. */
async function findPredictor(pack: Pack): Promise<FoundPredictor> {
  try {
    return { predictor: await readPredictor(pack), damage: null };
  } catch (thrown) {
    const damage = toOdmoeError(thrown);
    if (!UNUSABLE.has(damage.code)) throw thrown;
    return { predictor: null, damage };
  }
}

/** Slot sizes on a processor. A device that maps memory uses whole pages. */
function slotsOf(source: ModelSource): DescribedSlots {
  const slotOf = (sliced: SlicedSplit | null): { slotBytes: number; lowerBytes: number } => {
    const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 1, budgetBytes: 0 });
    try {
      return device.expertSlotBytes(
        expertShape(source.shape, sliced, () => allExperts(source)),
        SLOT_ROWS,
        PLAIN_LOADER,
      );
    } finally {
      device.dispose();
    }
  };
  return {
    shippedBytes: slotOf(null).slotBytes,
    slicedBytes: (split) => {
      const { slotBytes, lowerBytes } = slotOf(split);
      return { upper: slotBytes, both: slotBytes + lowerBytes };
    },
  };
}

async function verifyWithProgress(pack: Pack, slices: Slices | null): Promise<PackDamage[]> {
  const bar = createProgressBar('verifying');
  try {
    const damages = await verifyPack(pack, NATIVE_BYTE_TOOLS, (done, total) => bar.update(done, total));
    if (slices === null) return damages;
    const weights = damages.length === 0 && !isSlicesOnly(pack.manifest) ? pack : null;
    const found = await verifySlices(slices, weights, NATIVE_SLICING_TOOLS, (done, total) => bar.update(done, total));
    return [...damages, ...found];
  } finally {
    bar.stop();
  }
}

function kindOf({ directory, pack }: ModelDescription): string {
  if (pack === null) return `${directory.endsWith('.gguf') ? 'a GGUF file' : 'a Hugging Face checkpoint'} (not a pack)`;
  return pack.slicesOnly ? 'a pack of slices only' : 'a pack';
}

function descriptionLines(model: ModelDescription, verify: boolean, damages: PackDamage[] | null): string[] {
  const { shape, pack } = model;
  const millions = (parameters: number): string => `${Math.round(parameters / 1e6).toLocaleString('en')} M`;
  const lines = [
    `${model.directory}: ${kindOf(model)}`,
    `  model       ${model.name}, ${model.family}, ${formatLine(model)}`,
    `  parameters  ${millions(model.parameters)}, ${millions(model.parametersPerToken)} for each token`,
    `  shape       ${shape.layers.length} layers (${shape.expertLayers} with experts), hidden ${shape.hiddenSize}, ${shape.experts} experts, top ` +
      `${shape.expertsPerToken}, expert size ${shape.expert.intermediateSize}, vocabulary ${shape.vocabSize}, context ${shape.maxPositions}`,
    ...layerLines(model),
    `  on disk     ${formatBytes(model.totalBytes)} in ${model.files.length} ${model.files.length === 1 ? 'file' : 'files'}: ${formatBytes(model.expertBytes)} of experts ` +
      `(${layerBytes(model.bytesPerLayer)} a layer), ${formatBytes(model.denseBytes)} of everything else`,
    ...(model.draftHeadBytes === null
      ? []
      : [`  draft head  ${formatBytes(model.draftHeadBytes)}: a layer that drafts tokens (multi-token prediction)`]),
    ...(model.slotBytes === null
      ? []
      : [`  worker slot ${formatBytes(model.slotBytes)} of device memory for one expert`]),
  ];
  if (pack === null) {
    if (verify)
      lines.push(
        '  verified    headers and shapes only: a checkpoint has no checksums; "odmoe pack" makes a pack, which has',
      );
    return lines;
  }
  lines.push(
    `  format      version ${pack.formatVersion}, odmoe ${pack.odmoeVersion}, ` +
      `codec ${describeCodec({ codec: pack.codec, level: pack.codecLevel })}, ${pack.shards} shards`,
    ...(pack.slicesOnly ? [] : compressionLines(pack.compression)),
  );
  lines.push(`  digest      ${pack.digest}`);
  if (pack.slices !== null) lines.push(...slicesLines(pack.slices));
  if (pack.slicesUnfinished) lines.push(unfinishedLine(model.directory));
  if (pack.slicesDamage !== null) lines.push(damagedLine(pack.slices !== null));
  if (pack.shadowRecall !== null)
    lines.push('  shadow      recall of each form, without alignment:', ...recallLines(pack.shadowRecall));
  if (pack.predictor !== null) lines.push(...predictorSummary(pack.predictor));
  if (pack.predictorDamage !== null) lines.push('  predictor   cannot be used');
  if (damages?.length === 0 && pack.slicesDamage === null)
    lines.push('  verified    every file and chunk is as the manifest says');
  return lines;
}

/** One line per kind of layers, and the skipped tensors. */
function layerLines({ layerKinds, leftOut }: ModelDescription): string[] {
  const kinds = layerKinds.map(({ layers, mixer, always, routed }, index) => {
    const parts = [mixer, always, routed].filter((part) => part !== null);
    return `  ${index === 0 ? 'layers     ' : '           '} ${describeNumbers(layers)}: ${parts.join('; ')}`;
  });
  const left = leftOut.slice(0, LEFT_OUT_NAMED).map(({ name, tensors, sizeBytes }, index) => {
    const count = tensors === 1 ? '' : `, ${tensors} tensors`;
    return `  ${index === 0 ? 'left out   ' : '           '} ${name} (${formatBytes(sizeBytes)}${count})`;
  });
  const more = leftOut.length - LEFT_OUT_NAMED;
  return [...kinds, ...left, ...(more > 0 ? [`              and ${more} more kinds of tensors`] : [])];
}

/** The experts' size compared with the shipped size, in total and by plane. */
function compressionLines(compression: PackCompression): string[] {
  const { shippedBytes, storedBytes, ratio, planes } = compression;
  const padding = paddingLine(compression);
  const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;
  return [
    `  experts     ${formatBytes(storedBytes)} for ${formatBytes(shippedBytes)} as shipped: ${percent(ratio)}`,
    ...planes.map((plane) => {
      const left = plane.chunksLeftRaw > 0 ? `, ${plane.chunksLeftRaw} of ${plane.chunks} chunks left raw` : '';
      const bytes = `${formatBytes(plane.storedBytes)} for ${formatBytes(plane.plainBytes)}`;
      return `              ${plane.split} plane ${plane.plane}: ${plane.codec}, ${bytes}: ${percent(plane.ratio)}${left}`;
    }),
    ...(padding === null ? [] : [`              ${padding}`]),
  ];
}

/** For example "1.57 MB", or "1.41 MB to 1.57 MB" if layers differ. */
function layerBytes(bytesPerLayer: number[]): string {
  const least = formatBytes(Math.min(...bytesPerLayer));
  const most = formatBytes(Math.max(...bytesPerLayer));
  return least === most ? least : `${least} to ${most}`;
}
