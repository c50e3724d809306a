/** Numbers 0, 1, 2, ... handed out smallest first: a binary heap over a preallocated array. */
export class SmallestFirst {
  private readonly heap: Int32Array;
  private ownSize = 0;

  constructor(capacity: number) {
    this.heap = new Int32Array(capacity);
  }

  get size(): number {
    return this.ownSize;
  }

  push(value: number): void {
    const heap = this.heap;
    let index = this.ownSize++;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = heap[parent] ?? 0;
      if (above <= value) break;
      heap[index] = above;
      index = parent;
    }
    heap[index] = value;
  }

  /** Of a heap that is not empty. */
  pop(): number {
    const heap = this.heap;
    const smallest = heap[0] ?? 0;
    const last = heap[--this.ownSize] ?? 0;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= this.ownSize) break;
      if (child + 1 < this.ownSize && (heap[child + 1] ?? 0) < (heap[child] ?? 0)) child += 1;
      if ((heap[child] ?? 0) >= last) break;
      heap[index] = heap[child] ?? 0;
      index = child;
    }
    heap[index] = last;
    return smallest;
  }
}
