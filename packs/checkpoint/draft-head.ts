import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { DenseRole } from '../../shared/model/dense-roles.js';
import { type DraftHeadSource, type ModelSource, sharedTensor } from '../../shared/model/tensor-source.js';
import { shippedFormatOf } from '../../shared/model/weight-dtype.js';
import type { ExpectedTensor, ModelConfig } from '../model-config/model-family.js';
import { type ModelTensor, TensorFinder } from './checkpoint-tensors.js';
import { expectedTensors } from './expected-tensors.js';
import { hasWeight } from './quantized/module-tensors.js';
import { SourceTable } from './source-table.js';
import { chooseLayout, type CheckpointTensors } from './stored-forms.js';

/** A checkpoint's head that drafts. */
export interface CheckpointDraftHead extends DraftHeadSource {
  /** Names of its tensors in the checkpoint. */
  readonly used: ReadonlySet<string>;
}

/** The head; or null, with the reason where the checkpoint has one that cannot be read. */
export interface FoundDraftHead {
  head: CheckpointDraftHead | null;
  problem: string | null;
}

/** Tensors of which the model's own may stand for the head's. */
const SHARED: ReadonlySet<DenseRole> = new Set(['embedding', 'lmHead']);

/** Finds the tensors of a head. */
export interface HeadFinder {
  /** The head's config, with the layout of what is stored. */
  readonly config: ModelConfig;
  /** Names of the tensors that were found. */
  readonly used: ReadonlySet<string>;
  /** @throws MODEL_CORRUPT, MODEL_UNSUPPORTED */
  find(expected: ExpectedTensor): ModelTensor;
}

type HeadOwner = Pick<ModelSource, 'directory' | 'name' | 'dense' | 'tiedEmbeddings' | 'eosTokenIds'>;

/**
 * Finds the head of a checkpoint. A head that cannot be read changes no answer: then the model is read without it, and `problem` says why.
 * `model`: the model for which it drafts.
 */
export function findDraftHead(
  config: ModelConfig | undefined,
  found: CheckpointTensors,
  model: HeadOwner,
): FoundDraftHead {
  return findHeadAmong(
    config,
    (name) => hasWeight(found, name),
    (own) => {
      const chosen = chooseLayout(own, found, model.directory);
      const finder = new TensorFinder(found, chosen, model.directory);
      return { config: chosen, used: finder.used, find: (expected) => finder.find(expected) };
    },
    model,
  );
}

/** As findDraftHead, among other tensors than those of safetensors files. `open`: how the tensors of a head that is there are found. */
export function findHeadAmong(
  config: ModelConfig | undefined,
  has: (name: string) => boolean,
  open: (config: ModelConfig) => HeadFinder,
  model: HeadOwner,
): FoundDraftHead {
  if (config === undefined || !has(config.layout.dense({ role: 'draftInput', layer: 0 }).name)) {
    return { head: null, problem: null };
  }
  try {
    return { head: readDraftHead(open(config), has, model), problem: null };
  } catch (thrown) {
    const isExpected =
      thrown instanceof OdmoeError && (thrown.code === 'MODEL_CORRUPT' || thrown.code === 'MODEL_UNSUPPORTED');
    if (!isExpected) throw thrown;
    return { head: null, problem: thrown.message };
  }
}

function readDraftHead(finder: HeadFinder, has: (name: string) => boolean, model: HeadOwner): CheckpointDraftHead {
  const { directory } = model;
  const { shape } = finder.config;
  const table = new SourceTable(shape, false, directory);
  const tensors: ModelTensor[] = [];
  const sharedRoles = new Set<DenseRole>();
  for (const expected of expectedTensors(finder.config)) {
    const { place, name } = expected;
    if (place.kind === 'dense' && SHARED.has(place.role) && !has(name)) sharedRoles.add(place.role);
    else tensors.push(finder.find(expected));
  }
  for (const { place, source } of tensors) table.add(place, source);
  return {
    kind: 'checkpoint',
    directory,
    name: model.name,
    shape,
    shippedFormat: shippedFormatOf(tensors.flatMap(({ place, source }) => (place.kind === 'expert' ? [source] : []))),
    eosTokenIds: model.eosTokenIds,
    packDigest: null,
    tiedEmbeddings: false,
    sharedRoles,
    used: finder.used,
    dense: (role, layer) => (sharedRoles.has(role) ? sharedTensor(model, role) : table.dense(role, layer)),
    expert: (layer, expert) => table.expert(layer, expert),
  };
}
