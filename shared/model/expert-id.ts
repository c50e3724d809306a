/** An expert of the model: its expert layer, and its number in that layer; both count from 0. */
export interface ExpertId {
  readonly layer: number;
  readonly expert: number;
}
