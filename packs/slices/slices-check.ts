/** Finds the errors in a well-formed slices.json. Pure. */
import { EXPERT_MATRICES } from '../../shared/model/tensor-source.js';
import { type Manifest, type ManifestExtent, tensorName } from '../format/manifest.js';
import { sliceFileName, SLICES } from '../format/pack-layout.js';
import {
  type FingerprintedTensor,
  fingerprintedBiases,
  packedTensors,
  sourceFingerprint,
} from '../packing/source-identity.js';
import { type ExpertPlaces, sliceLayout } from './slice-layout.js';
import type { SlicedExpert, SlicesManifest } from './slices-manifest.js';

/** All contradictions between slices.json and the pack; empty if there are none. */
export function slicesProblems(slices: SlicesManifest, { model, dense, draft_head, source }: Manifest): string[] {
  const { shape } = model;
  const layout = sliceLayout(shape, slices.split);
  const problems = fileProblems(slices, shape.expertLayers, layout.fileBytes);
  if (slices.experts.length !== shape.expertLayers * shape.experts) {
    return [...problems, `${slices.experts.length} experts, expected ${shape.expertLayers} layers of ${shape.experts}`];
  }
  slices.experts.forEach((expert, index) => {
    const [layer, number] = [Math.floor(index / shape.experts), index % shape.experts];
    const where = `layer ${layer} expert ${number}`;
    if (expert.layer !== layer || expert.expert !== number) {
      problems.push(`layer ${expert.layer} expert ${expert.expert} stands where ${where} is expected`);
    }
    const places = layout.experts[number];
    if (places !== undefined) problems.push(...expertProblems(expert, places).map((problem) => `${where} ${problem}`));
  });
  if (problems.length > 0) return problems;
  const found = sourceFingerprint([
    ...packedTensors({ dense, experts: [], draft_head }),
    ...slicedTensors(slices.experts),
  ]);
  return found === source.fingerprint ? [] : ["the slices are not those of the pack's weights"];
}

/** The tensors that were sliced, as the fingerprint of a pack's source counts them. */
export function slicedTensors(experts: readonly SlicedExpert[]): FingerprintedTensor[] {
  return experts.flatMap((entry) => {
    const { layer, expert, biases } = entry;
    const matrices = EXPERT_MATRICES.map((part): FingerprintedTensor => {
      const { source_format: format, source_crc32c: crc } = entry[part];
      return { name: tensorName({ layer, expert, part }), format, crc32c: [crc] };
    });
    return biases === null ? matrices : [...matrices, fingerprintedBiases(entry, biases.crc32c)];
  });
}

function fileProblems(
  { files }: SlicesManifest,
  layers: number,
  fileBytes: Readonly<Record<(typeof SLICES)[number], number>>,
): string[] {
  const expected = Array.from({ length: layers }, (_, layer) =>
    SLICES.map((slice) => ({ name: sliceFileName(layer, slice), bytes: fileBytes[slice] })),
  ).flat();
  if (files.length !== expected.length) return [`${files.length} files, expected ${expected.length}`];
  return expected.flatMap(({ name, bytes }, index) => {
    const file = files[index];
    if (file?.name !== name) return [`${file?.name ?? 'nothing'} is listed where ${name} is expected`];
    return file.size_bytes === bytes ? [] : [`${name} is said to have ${file.size_bytes} bytes, expected ${bytes}`];
  });
}

function expertProblems(expert: SlicedExpert, { matrices, biases }: ExpertPlaces): string[] {
  const problems: string[] = [];
  for (const part of EXPERT_MATRICES) {
    const [matrix, places] = [expert[part], matrices[part]];
    if (matrix.rows !== places.rows || matrix.columns !== places.columns) {
      problems.push(`${part} is ${matrix.rows} x ${matrix.columns}, expected ${places.rows} x ${places.columns}`);
    }
    for (const slice of SLICES) problems.push(...placeProblems(`${part} ${slice}`, matrix[slice], places[slice]));
  }
  if ((expert.biases === null) !== (biases === null)) {
    problems.push(biases === null ? 'has biases, and none are expected' : 'has no biases');
  } else if (expert.biases !== null && biases !== null) {
    problems.push(...placeProblems('biases', expert.biases, biases));
  }
  return problems;
}

function placeProblems(
  name: string,
  { offset_bytes: offset, stored_bytes: stored }: ManifestExtent,
  { offsetBytes, storedBytes }: { offsetBytes: number; storedBytes: number },
): string[] {
  if (offset === offsetBytes && stored === storedBytes) return [];
  return [`${name} has ${stored} bytes at ${offset}, expected ${storedBytes} at ${offsetBytes}`];
}
