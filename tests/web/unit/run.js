import './markdown_test.js';
import './hostile_test.js';
import './modules_test.js';
import { runAll } from './check.js';

runAll();
