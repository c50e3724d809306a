import type { MessageTap } from '../../network/channel.js';

/**
 * Whatever happens, shadow gets the rows of main's cache without a gap: from row 0 on where it has just been told of a sequence, be it new or
 * in place of another shadow, or behind the rows that it has said it has kept of an earlier one; and else from no later than where the last
 * rows of the layer ended. Of layers with a recurrence those that main still has.
 */
export class AlignmentWatch {
  readonly violations: string[] = [];
  /** By shadow and sequence: the row of each layer that comes next. */
  private readonly next = new Map<string, Map<number, number>>();
  /** By shadow and sequence: rows that it has said it has. */
  private readonly kept = new Map<string, number>();

  /** `isRecurrent`: whether a layer keeps rows of the latest positions only. */
  constructor(
    private readonly main: string,
    private readonly isRecurrent: (layer: number) => boolean,
  ) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (way !== 'sent') return;
    if (message.kind === 'prefixKept')
      this.kept.set(`${from} ${message.prefixKept.sequence}`, message.prefixKept.positions);
    if (from !== this.main) return;
    if (message.kind === 'begin') {
      this.next.set(`${to} ${message.begin.sequence}`, new Map());
      this.kept.delete(`${to} ${message.begin.sequence}`);
    } else if (message.kind === 'end') {
      this.next.delete(`${to} ${message.end.sequence}`);
      this.kept.delete(`${to} ${message.end.sequence}`);
    } else if (message.kind === 'cacheRows') {
      const { sequence, layer, position, rows } = message.cacheRows;
      const layers = this.next.get(`${to} ${sequence}`);
      const due = layers?.get(layer) ?? this.kept.get(`${to} ${sequence}`) ?? 0;
      if (layers === undefined || (position > due && !this.isRecurrent(layer)))
        this.violations.push(
          layers === undefined
            ? `${to} gets rows of sequence ${sequence}, which it has not been told of`
            : `${to} gets rows of layer ${layer} from ${position} on, and those from ${due} on are next`,
        );
      layers?.set(layer, position + rows);
    }
  };
}
