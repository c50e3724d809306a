/** What is missing of the first and what is too much. */
export function difference(due: readonly string[], sent: readonly string[]): string {
  const left = [...sent];
  const missing = due.filter((one) => {
    const place = left.indexOf(one);
    if (place >= 0) left.splice(place, 1);
    return place < 0;
  });
  return `missing are [${missing.slice(0, 5).join(', ')}], not due were [${left.slice(0, 5).join(', ')}]`;
}
