import { openTensor } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { expertLayerNumbers } from '../../shared/model/model-shape.js';
import type { ModelSource, TensorSource } from '../../shared/model/tensor-source.js';
import type { PlacedWorkers } from '../cluster/placed-workers.js';
import { criticalField, type PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
import type { Announcements } from './announcements.js';
import { decodePosition, type MemberRows, rangeOf } from './pass-member.js';

const INTEGER_BYTES = 4;

/**
 * Layers whose routers take the experts of a row from a table by its token. Main knows these experts as soon as it knows the token of an answer or of
 * a draft, so that it announces all of them before the pass begins, and none in vain.
 */
export class TokenExperts {
  /** Reads the tables of a model; null: it has none. @throws MODEL_CORRUPT, PACK_CORRUPT, STORAGE_FAILED */
  static async read(source: Pick<ModelSource, 'shape' | 'dense' | 'directory'>): Promise<TokenExperts | null> {
    const { layers, expertsPerToken, experts } = source.shape;
    const tables = new Map<number, Uint16Array>();
    for (const [expertLayer, layer] of expertLayerNumbers(source.shape).entries()) {
      if (layers[layer]?.routed?.byToken !== true) continue;
      const table = await integersOf(source.dense('tokenExperts', layer));
      if (table.some((expert) => expert < 0 || expert >= experts)) {
        throw new OdmoeError(
          'MODEL_CORRUPT',
          `${source.directory}: the table of experts by token of layer ${layer} names others than its ${experts} experts; download the checkpoint again`,
        );
      }
      tables.set(expertLayer, Uint16Array.from(table));
    }
    return tables.size === 0 ? null : new TokenExperts(tables, expertsPerToken);
  }

  /** `tables`: by expert layer, the experts of each token, expertsPerToken of them. */
  constructor(
    private readonly tables: ReadonlyMap<number, ArrayLike<number>>,
    private readonly expertsPerToken: number,
  ) {}

  /** True if the experts of this expert layer follow from the token. */
  knows(layer: number): boolean {
    return this.tables.has(layer);
  }

  /** Announces the experts of all rows of answers in these layers, and tells the sequences' predictions. */
  announce(
    members: readonly MemberRows[],
    workers: Pick<PlacedWorkers, 'placement'>,
    announcements: Pick<Announcements, 'announce'>,
    precision: PrecisionRule | null,
  ): void {
    const { placement } = workers;
    if (placement === null) return;
    for (const layer of this.tables.keys()) {
      const expected = members.flatMap((rows) => {
        const position = decodePosition(rows);
        if (position === null) return [];
        const { member, tokenIds, decodeFrom } = rows;
        const answering = tokenIds.slice(decodeFrom);
        const experts = this.expertsOf(layer, answering);
        // Nobody knows yet how the rows will read the experts.
        const critical = precision === null ? [] : experts;
        member.predictions.know({
          epoch: placement.epoch,
          pass: { sequence: member.id, position },
          rows: [{ sequence: member.id, position, rows: answering.length }],
          layer,
          experts,
          ...criticalField(precision, critical),
          mainAnnounces: true,
        });
        return [{ experts, critical, rows: [rangeOf(rows)] }];
      });
      if (expected.length > 0) announcements.announce(layer, expected);
    }
  }

  /** The experts of the tokens, each once. */
  private expertsOf(layer: number, tokenIds: readonly number[]): number[] {
    const table = this.tables.get(layer);
    const experts = new Set<number>();
    for (const token of tokenIds)
      for (let rank = 0; rank < this.expertsPerToken; rank++) {
        const expert = table?.[token * this.expertsPerToken + rank];
        if (expert !== undefined) experts.add(expert);
      }
    return [...experts];
  }
}

/** The values of a tensor of whole numbers, row by row. */
async function integersOf(source: TensorSource): Promise<Int32Array> {
  const tensor = openTensor(source);
  try {
    const [bytes = new Uint8Array(0)] = await tensor.read(source.rows);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Int32Array.from({ length: source.rows * source.columns }, (_, index) =>
      view.getInt32(index * INTEGER_BYTES, true),
    );
  } finally {
    tensor.dispose();
  }
}
