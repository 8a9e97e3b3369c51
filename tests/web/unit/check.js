// A test is a name and a function that throws. Results go to window.results for the driver.

const tests = [];

export function test(name, run) {
  tests.push({ name, run });
}

export function equal(actual, expected) {
  const [a, e] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (a !== e) throw new Error(`expected ${e}, got ${a}`);
}

export function near(actual, expected, tolerance) {
  if (!(Math.abs(actual - expected) <= tolerance)) throw new Error(`expected ${expected} ± ${tolerance}, got ${actual}`);
}

export function ok(condition, what) {
  if (!condition) throw new Error(what);
}

export async function runAll() {
  const results = [];
  for (const { name, run } of tests) {
    const start = performance.now();
    let error = null;
    try {
      await run();
    } catch (e) {
      error = String(e.stack || e);
    }
    results.push({ name, error, ms: Math.round(performance.now() - start) });
    await new Promise((resolve) => { setTimeout(resolve); });  // the page stays alive between tests
  }
  window.results = results;
  document.body.dataset.done = 'yes';
}
