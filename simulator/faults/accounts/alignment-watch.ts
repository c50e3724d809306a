import type { MessageTap } from '../../network/channel.js';

/**
 * Checks that shadow always gets the rows of main's cache without a gap. When shadow has just got a sequence (a new one, or in place of another
 * shadow), its rows start from row 0, or after the rows that it has reported as retained from an earlier sequence. Otherwise they start at or
 * before the end of the layer's last rows. For layers with a recurrence only the rows that main still has count.
 */
export class AlignmentWatch {
  readonly violations: string[] = [];
  /** By shadow and sequence: the next row of each layer. */
  private readonly next = new Map<string, Map<number, number>>();
  /** By shadow and sequence: number of rows that shadow has reported as retained. */
  private readonly retained = new Map<string, number>();

  /** `isRecurrent`: true if a layer keeps rows of the latest positions only. */
  constructor(
    private readonly main: string,
    private readonly isRecurrent: (layer: number) => boolean,
  ) {}

  readonly messages: MessageTap = (way, from, to, message) => {
    if (way !== 'sent') return;
    if (message.kind === 'prefixKept')
      this.retained.set(`${from} ${message.prefixKept.sequence}`, message.prefixKept.positions);
    if (from !== this.main) return;
    if (message.kind === 'begin') {
      this.next.set(`${to} ${message.begin.sequence}`, new Map());
      this.retained.delete(`${to} ${message.begin.sequence}`);
    } else if (message.kind === 'end') {
      this.next.delete(`${to} ${message.end.sequence}`);
      this.retained.delete(`${to} ${message.end.sequence}`);
    } else if (message.kind === 'cacheRows') {
      const { sequence, layer, position, rows } = message.cacheRows;
      const layers = this.next.get(`${to} ${sequence}`);
      const due = layers?.get(layer) ?? this.retained.get(`${to} ${sequence}`) ?? 0;
      if (layers === undefined || (position > due && !this.isRecurrent(layer)))
        this.violations.push(
          layers === undefined
            ? `${to} gets rows of sequence ${sequence}, which main has not announced to it`
            : `${to} gets rows of layer ${layer} from ${position} on, and those from ${due} on are next`,
        );
      layers?.set(layer, position + rows);
    }
  };
}
